"""Splits of matrices that lie along M or N: bit for bit those of the same rows along K, and the
products that read them, with repairs that read the matrices as they lie.

Weights of four rows, or of a multiple of that, are not among them: on a GPU of 9.0 these are split
along N (tests/gpu/layouts/test_weights_along_n.py).
"""

import pytest
import torch
from calls import BATCH_NORM, LINEAR
from cases import IEEE, TF32, Shape, make_call
from check_call import check_bound, check_call, run_poisoned
from layouts import MAJORS, lay, name_majors
from tiles import force_tile

pytestmark = pytest.mark.gpu

PRECISIONS = {"ieee": IEEE, "tf32": TF32}
each_precision = pytest.mark.parametrize("precision", PRECISIONS)

# A tile is 32 rows of 128 of K. Up to that K, one block splits its rows alone.
SHAPES = (
    Shape(1, 1, 33, "one row, which is a column; K one above what CUDA cores multiply"),
    Shape(1, 1, 5000, "one row, and a K that many blocks share"),
    Shape(1, 3, 40, "fewer rows than 16 bytes hold; K no whole block of hi"),
    Shape(1, 31, 128, "one tile, all but a row"),
    Shape(1, 33, 129, "a tile more along both sides, of one row and of one of K"),
    Shape(1, 29, 33, "less than a tile along both sides; pieces of four end with the rows"),
    Shape(1, 202, 120, "several tiles of a short K, none of them whole along K"),
    Shape(1, 191, 128, "the longest short K, of whole tiles"),
    Shape(1, 130, 129, "the shortest long K"),
    Shape(1, 201, 250, "two tiles along K, the second of them not whole"),
    Shape(1, 190, 256, "whole tiles along K"),
    Shape(1, 130, 257, "a tile more"),
    Shape(1, 1001, 321, "odd K; rows of several tiles"),
    Shape(1, 63, 2048, "few columns and a long contraction"),
    Shape(1, 5, 70001, "very few, and a very long one"),
    Shape(1, 70001, 40, "many columns and a short contraction"),
    Shape(1, 20001, 300, "more tiles than there are blocks"),
)


def split(weight, precision):
    return torch.ops.cutlass_fused.split_weight(weight, precision)


def lie_along_rows(weight, ld=None, offset=0):
    """The same numbers with rows side by side, ld apart along K, among NaN that nobody may read."""
    n, k = weight.shape
    ld = n if ld is None else ld
    memory = weight.new_full((offset + k * ld,), torch.nan)
    view = memory[offset:].view(k, ld)[:, :n].t()
    view.copy_(weight)
    # A single row would lie along K, too, if its numbers were side by side.
    assert view.stride(0) == 1 and view.stride(1) == ld
    return view


def cut(split_weight, shape, precision):
    """The bytes of the rows, and of the scales: what lies between them is nobody's."""
    n, k = shape
    pitch = 128 * -(-k // 64) if precision == "ieee" else 8 * -(-k // 8)
    return split_weight[: 2 * n * pitch], split_weight[-4 * n :]


def check_split(weight, precision, **layout):
    expected = split(weight.contiguous(), precision)
    torch.full_like(expected, 0xFF)  # whose memory is taken next: what is not written is seen
    ours = split(lie_along_rows(weight, **layout), precision)
    assert ours.shape == expected.shape
    both = (cut(each, weight.shape, precision) for each in (ours, expected))
    for of_ours, of_expected in zip(*both, strict=True):
        assert torch.equal(of_ours, of_expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@each_precision
def test_the_bits_are_those_of_rows(device, precision, shape):
    weight = torch.randn(shape.n, shape.k, device=device)
    check_split(weight, precision, ld=shape.n + 4 + -shape.n % 4)  # lines of whole 16 bytes
    check_split(weight, precision, ld=shape.n + 3 - shape.n % 2)  # others
    if shape.n > 1:
        check_split(weight, precision)
    check_split(weight, precision, ld=shape.n + 4 + -shape.n % 4, offset=1)  # no aligned address


NUMBERS = {
    "scales by row": lambda w: w * 10.0 ** (torch.arange(len(w), device="cuda") % 61 - 30)[:, None],
    "scales by column": lambda w: w * 10.0 ** (torch.arange(w.shape[1], device="cuda") % 61 - 30),
    "every number its own": lambda w: w * 2.0 ** torch.randint(-60, 60, w.shape, device="cuda"),
    "small ones beside large ones": lambda w: w * torch.exp(4 * torch.randn_like(w)),
    "subnormal": lambda w: w * 1e-40,
    "exact, though they are small": lambda w: torch.exp2(-(w.abs() * 20).floor()),
    "zeros": lambda w: w * 0,
    "none": lambda w: w * torch.nan,
}


def put_special_values(weight):
    n, k = weight.shape
    weight[0] = 0
    weight[1, k - 1] = torch.inf
    weight[2, 0] = -torch.inf
    weight[3, k // 2] = torch.nan
    weight[4, 1], weight[4, k - 2] = 1e30, 1e-30
    weight[5, 3] = 1e-30
    weight[6] = 1e-42
    weight[7, k // 2 :] = 0
    weight[n - 1, k - 1] = 3e38
    return weight


@pytest.mark.parametrize("shape", [(70, 100), (130, 1000), (67, 20000)], ids=str)
@pytest.mark.parametrize(
    "numbers", [*NUMBERS.values(), put_special_values], ids=[*NUMBERS, "mixed"]
)
@each_precision
def test_numbers_of_all_kinds(device, precision, numbers, shape):
    """A short K, one that few blocks share, and one that many do."""
    weight = numbers(torch.randn(*shape, device=device)).float()
    check_split(weight, precision)
    check_split(weight, precision, ld=shape[0] + -shape[0] % 4)


@each_precision
def test_two_runs_give_the_same_bits(device, precision):
    """The order in which blocks join what rows lost does not matter."""
    weight = torch.exp(4 * torch.randn(3001, 3000, device=device))
    columns = lie_along_rows(weight)
    runs = [cut(split(columns, precision), weight.shape, precision) for _ in range(5)]
    for run in runs[1:]:
        assert all(map(torch.equal, run, runs[0]))


def test_more_than_2_31_elements(device):
    """Offsets of 64 bits, along K and along the rows."""
    if torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("needs 40 GiB")
    for n, k in ((66, 2**25 + 2**21), (2**25 + 2**21 + 1, 64)):
        lines = torch.randn(k, n, device=device)
        ours = split(lines.t(), "tf32")[: 2 * n * k].view(torch.float16).view(n, k)
        for rows in (slice(0, 3), slice(n - 3, n)):
            few = lines.t()[rows].contiguous()
            expected = split(few, "tf32")[: 6 * k].view(torch.float16).view(3, k)
            assert torch.equal(ours[rows], expected)
        del lines, ours


def test_nothing_is_copied(device):
    """A long K takes the split, and a little memory for what blocks tell each other."""
    weight = lie_along_rows(torch.randn(2050, 2048, device=device))
    split(weight, "ieee")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ours = split(weight, "ieee")
    assert torch.cuda.max_memory_allocated() - before < 1.1 * ours.numel()


# ---- products ----

PRODUCTS = (
    Shape(150, 134, 200, "several tiles, a K that is no whole block"),
    Shape(65, 33, 4097, "a long K that ends behind a tile"),
    Shape(300, 501, 40, "a short one"),
)


@pytest.fixture(autouse=True)
def split_rows(free_the_tile):
    """Small products too, which would be multiplied as they lie."""
    torch.ops.cutlass_fused.force_tile("split_rows")


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
@pytest.mark.parametrize("majors", MAJORS[1:], ids=name_majors)
@pytest.mark.parametrize("op", [LINEAR, BATCH_NORM])
@each_precision
def test_products(device, precision, op, majors, shape):
    call = make_call(op, shape, PRECISIONS[precision], device)
    turned = lay(call, majors)
    check_call(turned)
    assert torch.equal(run_poisoned(turned), run_poisoned(call))


@pytest.mark.parametrize("count", [1, 64], ids=lambda count: f"{count} rows of a tile")
@pytest.mark.parametrize("majors", MAJORS[1:], ids=name_majors)
@each_precision
def test_repairs(device, precision, majors, count):
    """Of few outputs of a tile, each by a warp, and of many. The terms that count are of numbers
    that a split loses: of x, of weight, and of both."""
    for shape in PRODUCTS:
        call = make_call(LINEAR, shape, PRECISIONS[precision], device)
        large = 5
        call.x[:count, large] = 1e30
        call.weight[:, large] = 0
        call.weight[[0, shape.n - 1], 7] = 1e-33
        call.x[:, 7] = 0
        call.x[shape.m - 1, 7] = 1e33
        turned = lay(call, majors)
        result = run_poisoned(turned)
        check_bound(turned, result)
        assert torch.equal(result, run_poisoned(call))


@pytest.mark.parametrize("majors", MAJORS[1:], ids=name_majors)
@each_precision
def test_infinities_and_nan(device, precision, majors):
    call = make_call(LINEAR, PRODUCTS[0], PRECISIONS[precision], device)
    call.x[3, 2], call.x[9, 3], call.weight[7, 2] = torch.inf, torch.nan, -torch.inf
    call.x[20] = 0
    expected = run_poisoned(call)
    assert not expected.isfinite().all()
    result = run_poisoned(lay(call, majors))
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_kept_parts_of_a_weight_along_n(device):
    """Also where a row of x is to be repaired, for which the weight is read."""
    call = lay(make_call(LINEAR, PRODUCTS[0], IEEE, device), (True, True))
    call.x[3, 5] = 1e30
    call.weight[:, 5] = 0
    expected = run_poisoned(call)
    kept = split(call.weight, "ieee")
    ours = torch.ops.cutlass_fused.linear(call.x, call.weight, call.bias, weight_split=kept)
    assert torch.equal(ours, expected)


def test_operands_are_not_copied(device):
    shape = Shape(1024, 1024, 1024, "copies would be as large as the result")
    for majors in MAJORS[1:]:
        call = lay(make_call(LINEAR, shape, IEEE, device), majors)
        call.run()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = call.run()
        taken = torch.cuda.max_memory_allocated() - before
        assert taken < 1.2 * 3 * y.numel() * 4  # y, and the parts of x and weight


def test_in_a_graph_and_on_another_stream(device):
    for shape in PRODUCTS:
        call = lay(make_call(LINEAR, shape, IEEE, device), (True, True))
        expected = call.run()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):
            y = call.run()
        for _ in range(3):
            y.fill_(torch.nan)
            graph.replay()
            assert torch.equal(y, expected)


@pytest.mark.parametrize("majors", MAJORS[1:], ids=name_majors)
def test_kernels_of_older_gpus(device, majors):
    call = lay(make_call(LINEAR, PRODUCTS[0], IEEE, device), majors)
    with force_tile("sm80"):
        check_call(call)
