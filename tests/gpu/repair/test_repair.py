"""What a product of split rows leaves to the repair: outputs of every place and number, computed by
tensor cores, by warps, or by CUDA cores, and no others."""

import pytest
import torch
from accuracy import Judge
from calls import BATCH_NORM, LEAKY, LINEAR
from cases import IEEE, TF32, Shape, make_call
from check_call import check_bound, check_call, run_poisoned
from layouts import MAJORS, lay, misalign_rows, name_majors
from tiles import force_tile

from bench.cases.accuracy_inputs import INPUTS

pytestmark = pytest.mark.gpu

PRECISIONS = {"ieee": IEEE, "tf32": TF32}
each_precision = pytest.mark.parametrize("precision", PRECISIONS)

# Tiles of the repair are 64 x 64, and its stages 32 of K.
SHAPES = (
    Shape(150, 136, 200, "tiles that end with M and N, a stage that ends with K"),
    Shape(65, 33, 4097, "rows that do not begin at multiples of 16 bytes, and a long K"),
    Shape(300, 500, 40, "a K of one stage and a part"),
    Shape(1, 264, 256, "one row"),
    Shape(40, 1, 64, "one column"),
    Shape(2100, 1100, 260, "more tiles than blocks, several of them below each other"),
)
# Rows of x and of weight that lose what counts.
EVERY = slice(None)
PLACES = {
    "all": (EVERY, []),
    "all by weight": ([], EVERY),
    "tile of rows": (slice(64, 128), []),
    "one row": ([-1], []),
    "one column": ([], [-1]),
    "row and column": ([0], [0]),
    "every ninth row": (slice(4, None, 9), []),
    "none": ([], []),
}
LARGE_OF_X, LARGE_OF_WEIGHT = 5, 7  # of K


@pytest.fixture(autouse=True)
def split_rows(free_the_tile):
    """Small products too, which would be multiplied as they lie."""
    torch.ops.cutlass_fused.force_tile("split_rows")


def spoil(call, rows, columns):
    """Beside a number of 1e30 all others of a row are lost, and they alone count: the other
    operand has a zero there."""
    call.x[:, LARGE_OF_WEIGHT] = 0
    call.weight[:, LARGE_OF_X] = 0
    before = run_poisoned(call)
    call.x[rows, LARGE_OF_X] = 1e30
    call.weight[columns, LARGE_OF_WEIGHT] = 1e30
    return before


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("place", PLACES)
@each_precision
def test_every_place(device, precision, place, shape):
    """What is repaired is right, the same whenever, and nothing else changes."""
    rows, columns = PLACES[place]
    call = make_call(LINEAR, shape, PRECISIONS[precision], device)
    before = spoil(call, rows, columns)
    result = run_poisoned(call)
    check_bound(call, result)
    assert torch.equal(run_poisoned(call), result)
    kept = torch.ones_like(result, dtype=torch.bool)
    kept[rows], kept[:, columns] = False, False
    assert torch.equal(result[kept], before[kept])


@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@each_precision
def test_matrices_as_they_lie(device, precision, shape, majors):
    """Bit for bit, also where rows begin anywhere."""
    call = make_call(LINEAR, shape, PRECISIONS[precision], device)
    spoil(call, EVERY, [])
    result = run_poisoned(lay(call, majors))
    assert torch.equal(result, run_poisoned(call))
    assert torch.equal(run_poisoned(call.change(x=misalign_rows(call.x))), result)
    check_bound(call, result)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 63])
@each_precision
def test_few_outputs_of_a_tile(device, precision, count):
    """Of some rows one column, or so many, lacks the number that makes sums large: up to 32 outputs
    of a tile are computed by a warp each."""
    call = make_call(LINEAR, SHAPES[0], PRECISIONS[precision], device)
    spoil(call, [], [])
    call.weight[:, LARGE_OF_X] = 1
    call.weight[torch.arange(count), LARGE_OF_X] = 0
    call.x[[3, 77, 149], LARGE_OF_X] = 1e30
    check_bound(call, run_poisoned(call))


@pytest.mark.parametrize("op", [LEAKY, BATCH_NORM])
@pytest.mark.parametrize("place", PLACES)
@each_precision
def test_epilogues(device, precision, place, op):
    for shape in (SHAPES[0], SHAPES[1]):
        call = make_call(op, shape, PRECISIONS[precision], device)
        spoil(call, *PLACES[place])
        check_call(call)


@pytest.mark.parametrize("op", [LEAKY, BATCH_NORM])
@pytest.mark.parametrize("majors", MAJORS[1:], ids=name_majors)
def test_epilogues_behind_matrices_as_they_lie(device, majors, op):
    call = make_call(op, SHAPES[0], IEEE, device)
    spoil(call, EVERY, [])
    check_call(lay(call, majors))


@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
@each_precision
def test_what_is_not_finite_among_what_is(device, precision, majors):
    """Infinities, NaN, and numbers that are infinite when tensor cores are given them: of single
    rows, and of a whole tile."""
    for rows in ([100], slice(64, 128)):
        call = make_call(LINEAR, SHAPES[0], PRECISIONS[precision], device)
        spoil(call, EVERY, [])
        call.x[3, 2], call.x[9, 3], call.weight[7, 2] = torch.inf, torch.nan, -torch.inf
        call.x[20], call.x[20, LARGE_OF_X] = 0, 1e30
        call.weight[:, 11] = 0
        call.x[[0, 149], 11] = 2.0**120
        call.x[rows, 4] = torch.inf
        result = run_poisoned(lay(call, majors))
        Judge(call).check(result)
        assert result[[0, 149]][:, :7].isfinite().all()


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_nothing_finite(device, value):
    call = make_call(LINEAR, SHAPES[0], IEEE, device)
    call.x[:] = value
    Judge(call).check(run_poisoned(call))


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[1]], ids=str)
@pytest.mark.parametrize("place", ["all", "tile of rows", "one row"])
@torch.no_grad()
def test_weight_that_is_gone(device, place, shape):
    """Its parts are read, by CUDA cores."""
    call = make_call(LINEAR, shape, IEEE, device)
    spoil(call, *PLACES[place])
    split = torch.ops.cutlass_fused.split_weight(call.weight, "ieee")
    gone = torch.empty((), device=device).expand(call.weight.shape)
    y = torch.ops.cutlass_fused.linear(call.x, gone, call.bias, "ieee", None, split)
    check_bound(call, y)


def test_graph_whose_rows_change(device):
    """Whether anything is to be repaired is found when the graph runs."""
    call = make_call(LINEAR, SHAPES[5], IEEE, device)
    spoil(call, [], [])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call.run()
    for rows in ([], EVERY, [70], []):
        call.x[:, LARGE_OF_X] = 0
        call.x[rows, LARGE_OF_X] = 1e30
        y.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, call.run())
        check_bound(call, y)


@pytest.mark.parametrize("layout", ["forward", "gradient of x", "gradient of weight"])
def test_columns_of_40_binades(device, layout):
    """Every output, with an error no larger than cuBLAS's in fp32."""
    generator = torch.Generator(device).manual_seed(0)
    x, weight = INPUTS["ill_conditioned"](1024, 8192, 8192, generator, "cuda")
    if layout != "forward":
        weight = weight.t().contiguous().t()
    if layout == "gradient of weight":
        x = x.t().contiguous().t()
    with force_tile("split_rows"):
        y = torch.ops.cutlass_fused.linear(x, weight)
    truth = x.double() @ weight.double().t()
    error, limit = ((r.double() - truth).norm() for r in (y, x @ weight.t()))
    assert error <= limit
