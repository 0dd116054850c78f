"""Sums over rows in the kernel of a program: what is printed, run by threads of the host, and
compiled for GPUs."""

import ctypes

import pytest
import torch
from nvrtc import compile_to_ptx, takes_turn_first
from pointwise_kernels import Kernel, compile_cases, make_kernel_printer, make_params
from printed_programs import join_lines

from cutlass_fused.programs.parse import parse
from cutlass_fused.programs.program import run_whole
from cutlass_fused.programs.recorded import COPY

SHIM = "tests/host/programs/device_block.hpp"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Tiles and sums of the same and of other values, beside a row, a scalar and a column.
LINES = ["mul acc p0", "add v0 p1", "sigmoid v1", "mul v2 p2"]
KINDS = ("tile", "row", "tile", "column")
OUTPUTS = {
    "tile and sum of one value": (["v3", "v3"], (False, True)),
    "two sums behind a tile": (["v3", "v1", "v0"], (False, True, True)),
    "sums alone": (["v2", "acc", "v3"], (True, True, True)),
    "a sum first": (["v0", "v3"], (True, False)),
    "the sum of an operand and of a number": (["p0", "0x1.8p+0"], (True, True)),
}
# (x, y) blocks of (x, y) threads: one block, strips of several blocks of several lines, more lines
# than rows, one line.
GRIDS = (((1, 1), (8, 4)), ((2, 3), (4, 8)), ((3, 2), (2, 32)), ((1, 7), (8, 1)))
PIECES = (1, 2, 4, 8)
COLUMNS, ROWS = 24, (1, 7, 50)


def make(index, name):
    outputs, sums = OUTPUTS[name]
    inputs = tuple((DTYPES[(index + i) % 3], kind) for i, kind in enumerate(KINDS))
    dtypes = tuple(DTYPES[(index // 2 + i) % 3] for i in range(len(outputs)))
    text = join_lines(LINES, len(KINDS) - 1, outputs)
    return Kernel(text, PIECES[index % 4], inputs, dtypes, sums)


KERNELS = [make(index, name) for index, name in enumerate(name for name in OUTPUTS for _ in PIECES)]
# Of acc alone, with no operand.
KERNELS += [
    Kernel(COPY, piece, ((DTYPES[i % 3], "tile"),), (DTYPES[i % 3],), (True,))
    for i, piece in enumerate(PIECES)
]


@pytest.fixture(scope="module")
def print_all(tmp_path_factory):
    return make_kernel_printer(tmp_path_factory.mktemp("print_sums"))


@pytest.fixture(scope="module")
def run(print_all, tmp_path_factory):
    return compile_sums(print_all(KERNELS, True), tmp_path_factory.mktemp("sums"))


def compile_sums(sources, folder):
    """run(index, kernel, inputs, outputs, grid, block, from_last)."""
    compiled = compile_cases(
        sources,
        folder,
        SHIM,
        "float* partials, unsigned* arrived, unsigned grid_x, unsigned grid_y, unsigned block_x, "
        "unsigned block_y, bool from_last",
        "run_in_blocks({{grid_x, grid_y}}, {{block_x, block_y}}, from_last, [&] {{ "
        "case{i}::cutlass_fused_pointwise({params}, partials, arrived); }})",
    )

    def run(index, kernel, inputs, outputs, grid, block, from_last=False):
        params = make_params(inputs, outputs)
        params.output_stride = columns = inputs[0].shape[1]
        params.pieces = columns // kernel.piece
        # count_partials of program/pointwise_plan.hpp, and a number that nobody may write.
        count = grid[0] * grid[1] * block[0] * kernel.piece * sum(kernel.sums)
        partials = torch.full((count + 1,), torch.nan)
        arrived = torch.zeros(grid[0], dtype=torch.int32)
        memory = partials.data_ptr(), arrived.data_ptr()
        given = map(ctypes.c_void_p, memory)
        compiled.run(index, ctypes.byref(params), *given, *grid, *block, from_last)
        assert not arrived.any()  # as the next kernel must find them
        assert partials[-1].isnan()

    return run


def make_inputs(kernel, rows):
    torch.manual_seed(rows)
    shapes = {"tile": (rows, COLUMNS), "row": (COLUMNS,), "column": (rows, 1)}
    return [torch.randn(shapes[kind]).to(dtype) for dtype, kind in kernel.inputs]


def make_outputs(kernel, rows):
    shapes = ((COLUMNS,) if is_sum else (rows, COLUMNS) for is_sum in kernel.sums)
    pairs = zip(shapes, kernel.outputs, strict=True)
    return [torch.full(shape, torch.nan, dtype=dtype) for shape, dtype in pairs]


@pytest.mark.parametrize("grid, block", GRIDS)
@pytest.mark.parametrize("index", range(len(KERNELS)))
def test_values(run, index, grid, block):
    """And the same to the bit whichever block comes last."""
    kernel = KERNELS[index]
    grid = max(grid[0], -(-COLUMNS // kernel.piece // block[0])), grid[1]
    rows = ROWS[(index + grid[1]) % 3]
    inputs = make_inputs(kernel, rows)
    wide = [each.double() for each in inputs]
    expected = run_whole(parse(kernel.text), wide[0], wide[1:])
    outputs, again = make_outputs(kernel, rows), make_outputs(kernel, rows)
    run(index, kernel, inputs, outputs, grid, block)
    run(index, kernel, inputs, again, grid, block, from_last=True)
    for found, other, terms, is_sum in zip(outputs, again, expected, kernel.sums, strict=True):
        assert torch.equal(found, other)
        each = terms.sum(0) if is_sum else terms
        close = {"rtol": 4e-6, "atol": 4e-6} if found.dtype == torch.float32 else {}
        torch.testing.assert_close(found, each.to(found.dtype), **close)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiles(print_all, arch):
    """By NVRTC, without a warning; sums stay in registers, and words of 16 bytes are there."""
    for kernel, source in zip(KERNELS, print_all(KERNELS), strict=True):
        ptx, log = compile_to_ptx(source, ["--std=c++17", f"-arch={arch}"])
        assert ptx is not None and log.strip("\n\0") == "", log
        assert ".entry cutlass_fused_pointwise(" in ptx and ".local" not in ptx
        assert "atom.global.inc" in ptx and "bar.sync" in ptx and takes_turn_first(ptx, arch)
        if kernel.piece == 8:
            assert "ld.global.v4" in ptx and "st.global.v4" in ptx


def test_sums_alone_write_no_tile(print_all):
    """Nothing is written in the loop over the rows."""
    (source,) = print_all([make(3, "sums alone")])
    loop = source[source.index("for (long long first") :]
    assert "store(" not in loop[: loop.index("add_lines(sums);")]
