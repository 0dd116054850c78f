"""Programs of rows as kernels: what is printed, run by threads of the host, compiled for GPUs."""

import ctypes

import pytest
import torch
import traced
from nvrtc import compile_to_ptx, takes_turn_first
from pointwise_kernels import compile_cases, make_params, make_request_printer, name_of
from printed_programs import join_lines, write_number
from row_cases import COMPOSED, ROW_CASES, find_row_gradient, find_row_program

from cutlass_fused.programs.parse import parse
from cutlass_fused.programs.program import run_whole
from cutlass_fused.programs.words import ROW_WORDS

SHIM = "tests/host/programs/device_block.hpp"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Columns, elements of a piece and threads of a row: a part of a warp, a warp whose pieces are not
# whole, several warps, one element at a time, and more pieces than a loop is unrolled for.
PLANS = ((48, 4, 8), (96, 2, 32), (480, 4, 64), (112, 1, 64), (1120, 8, 1), (160, 4, 2))


def request(program, inputs, outputs, piece=0, threads=0):
    named = ",".join(f"{name_of(dtype)}:{kind}" for dtype, kind in inputs)
    results = ",".join(map(name_of, outputs))
    return f"{threads} {piece} {named} {results} {program.text.encode().hex()}"


def make(index):
    """A kernel of a case: plans and types in turn."""
    name = list(ROW_CASES)[index]
    plan = PLANS[index % len(PLANS)]
    program = find_row_program(name, plan[0]).program
    kinds = ("tile", *ROW_CASES[name].operands.values())
    inputs = tuple((DTYPES[(index + i) % 3], kind) for i, kind in enumerate(kinds))
    outputs = tuple(DTYPES[(index // 2 + i) % 3] for i in range(len(program.outputs)))
    columns, piece, threads = plan
    widths = [int(each.arguments[1]) for each in program.lines if each.word in ROW_WORDS]
    while any(width % piece and piece % width for width in widths):
        piece //= 2  # as the plan does
    return name, program, inputs, outputs, (columns, piece, threads)


def write_groups(word, columns, width):
    """Of a word of truths, of which elements are no less than 0, as numbers."""
    width, of_truths = write_number(width), ROW_WORDS[word].result == "b"
    lines = [f"{word} acc {width}"]
    if of_truths:
        lines = [f"ge acc {write_number(0)}", f"{word} v0 {width}", "float v1"]
    last = f"v{len(lines) - 1}"
    text = join_lines(lines, 0, [f"{last}:{int(float.fromhex(width))}", last])
    return parse(text.replace("operands 0\n", f"operands 0\ncolumns {columns}\n"))


# Every word by every way of merging: within a piece, by lanes, through shared memory with few and
# many parts, and by rows.
GROUPS = [
    (word, columns, width, piece, threads)
    for word in ROW_WORDS
    for columns, width, piece, threads in (
        (64, 2, 4, 8),
        (64, 16, 2, 16),
        (96, 12, 4, 64),
        (640, 320, 2, 64),
        (640, 40, 1, 32),
        (640, 640, 2, 64),
        (35, 5, 1, 32),
        (7, 7, 1, 8),
        (96, 3, 12, 8),
        (96, 3, 3, 16),
        (240, 24, 12, 16),
        (1536, 192, 12, 128),
        (160, 20, 10, 16),
        (4097, 4097, 1, 64),
    )
]
KERNELS = [make(index) for index in range(len(ROW_CASES))]


def write_quotients(columns):
    """acc by the sum of p0's row."""
    lines = f"v0 = row_sum p0 {write_number(columns)}\nv1 = div acc v0\nreturn v1\n"
    return parse(f"program 1\noperands 1\ncolumns {columns}\n{lines}")


def write_places():
    """Truths of places within other words."""
    lines = [
        *(f"ge acc {write_number(0)}", f"row_first v0 {write_number(12)}"),
        *(f"row_last v0 {write_number(96)}", "not v1", "xor v3 v2", "and v1 v0"),
        *(f"row_first v4 {write_number(96)}", "where v6 acc p0", "float v4", "float v5"),
    ]
    text = join_lines(lines, 1, ["v7", "v8", "v9"])
    return parse(text.replace("operands 1\n", "operands 1\ncolumns 96\n"))


QUOTIENTS = (96, 4, 8)  # columns, elements of a piece, threads


@pytest.fixture(scope="module")
def print_all(tmp_path_factory):
    return make_request_printer(tmp_path_factory.mktemp("print"))


@pytest.fixture(scope="module")
def run(print_all, tmp_path_factory):
    """run(index, program, inputs, outputs, threads): of KERNELS, then of GROUPS."""
    requests = [request(p, i, o, plan[1], plan[2]) for _, p, i, o, plan in KERNELS]
    single = ((torch.float32, "tile"),), (torch.float32, torch.float32)
    for word, columns, width, piece, threads in GROUPS:
        requests.append(request(write_groups(word, columns, width), *single, piece, threads))
    columns, piece, threads = QUOTIENTS
    two = ((torch.float32, "tile"),) * 2, (torch.float32,)
    requests.append(request(write_quotients(columns), *two, piece, threads))
    requests.append(request(write_places(), two[0], (torch.float32,) * 3, piece, threads))
    return compile_rows(print_all(requests, True), tmp_path_factory.mktemp("rows"))


def compile_rows(sources, folder):
    compiled = compile_cases(
        sources,
        folder,
        SHIM,
        "unsigned blocks, unsigned block_x, unsigned block_y",
        "run_blocks(case{i}::cutlass_fused_rows, {params}, blocks, {{block_x, block_y}})",
    )

    def run(index, inputs, outputs, threads, blocks=2):
        params = make_params(inputs, outputs)
        of_block = max(1, 128 // threads)
        compiled.run(index, ctypes.byref(params), blocks, threads, of_block)

    return run


@pytest.mark.parametrize("index", range(len(ROW_CASES)), ids=list(ROW_CASES))
def test_values(run, index):
    name, program, types, dtypes, (columns, _, threads) = KERNELS[index]
    # More rows than two blocks take at a time, the last of them in part.
    rows = 2 * (128 // threads) + 3 if 8 <= threads <= 32 else 5
    inputs = traced.make_inputs(ROW_CASES[name], types, rows, columns)
    wide = [each.double() for each in inputs]
    expected = run_whole(program, wide[0], wide[1:])
    outputs = [
        torch.full(each.shape, float("nan"), dtype=dtype)
        for each, dtype in zip(expected, dtypes, strict=True)
    ]
    run(index, inputs, outputs, threads)
    for found, each in zip(outputs, expected, strict=True):
        close = {"rtol": 1e-5, "atol": 1e-5} if found.dtype == torch.float32 else {}
        torch.testing.assert_close(found, each.to(found.dtype), **close)


@pytest.mark.parametrize("index", range(len(GROUPS)), ids=map(str, GROUPS))
def test_groups(run, index):
    """Whole numbers, whose sums are exact: to the bit; and NaN of a group in that group alone."""
    word, columns, width, _, threads = GROUPS[index]
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-99, 99, (3, columns), generator=generator).float()
    x[1, columns // 2] = float("nan")
    x[2, -1] = float("-inf")
    expected = run_whole(write_groups(word, columns, width), x, [])
    outputs = [torch.zeros_like(each).contiguous() for each in expected]
    run(len(KERNELS) + index, [x], outputs, threads)
    for found, each in zip(outputs, expected, strict=True):
        torch.testing.assert_close(found, each, rtol=0, atol=0, equal_nan=True)


def test_places_within_words(run):
    x, other = torch.randint(-3, 2, (5, 96)).float(), torch.randn(5, 96)
    x[2], x[3] = -1.0, 1.0
    expected = run_whole(write_places(), x, [other])
    outputs = [torch.full_like(x, torch.nan) for _ in expected]
    run(len(KERNELS) + len(GROUPS) + 1, [x, other], outputs, QUOTIENTS[2])
    for found, each in zip(outputs, expected, strict=True):
        torch.testing.assert_close(found, each, rtol=0, atol=0)


def test_quotients(run, print_all):
    """Of elements by a number of their row: as PyTorch divides, but for the last bit of those that
    are next to 0, or whose element is."""
    columns, _, threads = QUOTIENTS
    large = torch.finfo(torch.float32).max
    special = [0.0, torch.inf, -torch.inf, torch.nan, 2.0**-149, -(2.0**-130), 2.0**-126, large]
    special += [-large, 3.0, -1.0, 2.0**100 * 1.1, 2.0**-100 / 1.1, 1e30, -1e-30, 1.0]
    torch.manual_seed(0)
    drawn = torch.rand(columns) * 2.0 ** torch.randint(-140, 128, (columns,))
    x = torch.cat([torch.tensor([*special, -0.0]), drawn])[:columns].float()
    divisors = torch.cat([torch.tensor(special), 1 + torch.rand(500) * 1000, drawn])
    x = x.expand(len(divisors), columns).contiguous()
    of = torch.zeros_like(x)
    of[:, 0] = divisors
    expected = x / divisors[:, None]
    y = torch.full_like(x, -7.0)
    run(len(KERNELS) + len(GROUPS), [x, of], [y], threads)
    exact = (expected.abs() >= 2.0**-125) & (x.abs() >= 2.0**-100) | ~expected.isfinite()
    torch.testing.assert_close(y[exact], expected[exact], rtol=0, atol=0, equal_nan=True)
    bits = [each[~exact].view(torch.int32) for each in (y, expected)]
    assert (bits[0] - bits[1]).abs().max() <= 1
    zero = (expected == 0) & (y == 0)
    assert torch.equal(y[zero].signbit(), expected[zero].signbit()) and zero.sum() > 100
    columns, piece, threads = QUOTIENTS
    two = ((torch.float32, "tile"),) * 2, (torch.float32,)
    (source,) = print_all([request(write_quotients(columns), *two, piece, threads)])
    assert "divide(" in source.partition("cutlass_fused_rows(")[2]


def test_faults_are_found(run):
    """What a test compares has to fail where a group is another."""
    word, columns, width, _, threads = GROUPS[1]
    x = torch.randn(3, columns)
    y = [torch.zeros(3, columns // width), torch.zeros(3, columns)]
    run(len(KERNELS) + 1, [x], y, threads)
    with pytest.raises(AssertionError):
        expected = run_whole(write_groups(word, columns, width // 2), x, [])
        torch.testing.assert_close(y[1], expected[1])


# Threads of a row and elements of a piece, of a bf16 product.
@pytest.mark.parametrize(
    "columns, width, threads, piece",
    [
        (96, 96, 16, 8),
        (512, 512, 32, 8),
        (768, 768, 64, 4),  # of 8 half of the threads would have two and the others one
        (1000, 1000, 64, 8),
        (1024, 1024, 64, 8),
        (4096, 4096, 256, 8),
        (768, 3, 64, 12),
        (768, 192, 64, 12),
        (768, 24, 64, 12),
        (640, 20, 64, 10),
        (1024, 32, 64, 8),
        (770, 11, 64, 1),
        (765, 3, 64, 3),
    ],
)
def test_deal(print_all, columns, width, threads, piece):
    """No more than 16 elements of a thread while a row has threads enough; whole groups."""
    program = write_groups("row_sum", columns, width)
    types = (torch.bfloat16, torch.bfloat16)
    (source,) = print_all([request(program, ((torch.bfloat16, "tile"),), types)])
    assert source.lstrip().splitlines()[0].split()[1:3] == [str(threads), str(piece)]
    # Two turns of at most 32 warps of a row, for each row of a block of 128 threads.
    of_row = 64 * max(1, 128 // threads) if threads > 32 else 1
    if width == columns or threads <= 32:
        assert f"__shared__ float shared[{of_row}];" in source


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("columns", [16, 4096, 8192, 20000])
def test_compiles(print_all, arch, columns):
    """By NVRTC, without a warning, as the plan has them; nothing lies in local memory."""
    names = ("softmax", "layer_norm", "group_norm", "log_sum_exp")
    names = names if columns == 4096 else names[:2]
    programs = [find_row_program(name, columns).program for name in names]
    requests = [
        request(
            program,
            ((torch.float32, "tile"), *(((torch.bfloat16, "row"),) * program.operands)),
            (torch.bfloat16,),
        )
        for program in programs
    ]
    for source in print_all(requests):
        assert source.lstrip().startswith("// ")
        ptx, log = compile_to_ptx(source, ["--std=c++17", f"-arch={arch}"])
        assert ptx is not None and log.strip("\n\0") == "", log
        assert ".entry cutlass_fused_rows(" in ptx and ".local" not in ptx
        assert takes_turn_first(ptx, arch)


def test_gradients_compile(print_all):
    for name in ROW_CASES:
        if name in COMPOSED:
            continue
        gradient = find_row_gradient(name, 4096).program
        inputs = ((torch.float32, "tile"),) * (1 + gradient.operands)
        outputs = (torch.float32,) * len(gradient.outputs)
        (source,) = print_all([request(gradient, inputs, outputs)])
        ptx, log = compile_to_ptx(source, ["--std=c++17", "-arch=sm_90"])
        assert ptx is not None and log.strip("\n\0") == "", log


def test_what_is_of_a_row_is_computed_once(print_all):
    """By each thread, in front of its elements: a GELU of a sum had been computed for each."""
    lines = f"v0 = row_sum acc {write_number(8192)}\nv1 = gelu v0\nv2 = add v1 p0\nreturn v2\n"
    program = parse(f"program 1\noperands 1\ncolumns 8192\n{lines}")
    for kind in ("column", "tile"):
        inputs = ((torch.bfloat16, "tile"), (torch.bfloat16, kind))
        (source,) = print_all([request(program, inputs, (torch.bfloat16,))])
        body = source.partition("cutlass_fused_rows(")[2]
        behind = body.partition("merge_row<")[2]
        assert "\n    float const v1 = cutlass_fused_gelu(v0);\n" in behind.partition("for (")[0]
        line = "    float const v2 = " if kind == "column" else "        float const v2 = "
        assert f"\n{line}" in behind


@pytest.mark.parametrize(
    "columns, dtype, is_ahead",
    [(8192, torch.bfloat16, True), (8192, torch.float32, True), (65536, torch.float32, False)],
)
def test_a_tile_of_a_later_phase_is_on_its_way_early(print_all, columns, dtype, is_ahead):
    """In front of the threads' meeting, where a thread has registers for it."""
    lines = f"v0 = row_sum acc {write_number(columns)}\nv1 = add v0 p0\nreturn v1\n"
    program = parse(f"program 1\noperands 1\ncolumns {columns}\n{lines}")
    (source,) = print_all([request(program, ((dtype, "tile"),) * 2, (dtype,))])
    front, _, behind = source.partition("cutlass_fused_rows(")[2].partition("merge_row<")
    assert ("inputs[1]" in front, "inputs[1]" in behind) == (is_ahead, not is_ahead)
