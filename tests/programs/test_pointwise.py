"""Programs as kernels of their own: what is printed, run on the host and compiled for GPUs."""

import pytest
import torch
import traced
from nvrtc import compile_to_ptx, takes_turn_first
from pointwise_kernels import Kernel, compile_kernels, make_kernel_printer
from program_cases import CASES

from cutlass_fused.programs.program import run as run_program

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PIECES = (1, 2, 4, 8)
ROWS, COLUMNS = 7, 24
# Fewer threads than pieces and rows, and more.
GRIDS = (((2, 2), (16, 2)), ((1, 1), (32, 8)), ((24, 3), (1, 1)))


def make(index):
    """A kernel of a case: types and pieces in turn."""
    name = list(CASES)[index]
    case = CASES[name]
    program = traced.find_program(name, case)
    kinds = ("tile", *case.operands.values())
    inputs = tuple((DTYPES[(index + i) % 3], kind) for i, kind in enumerate(kinds))
    outputs = tuple(DTYPES[(index // 3 + i) % 3] for i in range(len(program.outputs)))
    return program, Kernel(program.text, PIECES[index % 4], inputs, outputs)


KERNELS = [make(index) for index in range(len(CASES))]
ALL_TYPES = [
    make(0)[1]._replace(piece=piece, inputs=((first, "tile"),), outputs=(second,))
    for piece in PIECES
    for first in DTYPES
    for second in DTYPES
]


@pytest.fixture(scope="module")
def print_all(tmp_path_factory):
    return make_kernel_printer(tmp_path_factory.mktemp("print_pointwise"))


@pytest.fixture(scope="module")
def run(print_all, tmp_path_factory):
    kernels = [*(kernel for _, kernel in KERNELS), *ALL_TYPES]
    return compile_kernels(print_all(kernels, True), tmp_path_factory.mktemp("kernels"))


def make_inputs(kernel, case, rows=ROWS, columns=COLUMNS):
    return traced.make_inputs(case, kernel.inputs, rows, columns)


@pytest.mark.parametrize("grid, block", GRIDS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=list(CASES))
def test_values(run, index, grid, block):
    program, kernel = KERNELS[index]
    inputs = make_inputs(kernel, list(CASES.values())[index])
    wide = [each.float() for each in inputs]
    expected = run_program(program, wide[0], wide[1:])
    outputs = [torch.full((ROWS, COLUMNS), float("nan"), dtype=each) for each in kernel.outputs]
    needed = -(-COLUMNS // kernel.piece // block[0])
    run(index, kernel.piece, inputs, outputs, (max(grid[0], needed), grid[1]), block)
    for found, each in zip(outputs, expected, strict=True):
        close = {"rtol": 2e-6, "atol": 1e-6} if found.dtype == torch.float32 else {}
        torch.testing.assert_close(found, each.to(found.dtype), **close)


@pytest.mark.parametrize("index", range(len(ALL_TYPES)))
def test_types(run, index):
    """Every type to every type, by pieces of all sizes: to the bit, NaN and subnormals too."""
    kernel = ALL_TYPES[index]
    special = torch.tensor([*traced.SPECIAL, 65504.0, 65520.0, 3e38, 1e-7, 6e-8, 2.0**-133])
    x = special.repeat(2, 1).to(kernel.inputs[0][0])
    y = torch.zeros(2, len(special), dtype=kernel.outputs[0])
    run(len(CASES) + index, kernel.piece, [x], [y], (1, 1), (32, 1))
    assert torch.equal(y.isnan(), x.float().to(y.dtype).isnan())
    assert torch.equal(y.nan_to_num(nan=7.0), x.float().to(y.dtype).nan_to_num(nan=7.0))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiles(print_all, arch):
    """By NVRTC, without a warning, and the words of 16 bytes are there."""
    chosen = [KERNELS[index][1] for index in range(0, len(KERNELS), 9)] + ALL_TYPES[-9:]
    for source in print_all(chosen):
        ptx, log = compile_to_ptx(source, ["--std=c++17", f"-arch={arch}"])
        assert ptx is not None and log.strip("\n\0") == "", log
        assert ".entry cutlass_fused_pointwise(" in ptx and takes_turn_first(ptx, arch)
    assert "ld.global.v4" in ptx and "st.global.v4" in ptx and ".local" not in ptx
