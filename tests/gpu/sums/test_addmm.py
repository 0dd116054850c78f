"""A product and a sum in one op, by every engine: alpha * x @ weight.T + beta * c."""

import itertools

import pytest
import torch
from accuracy import matmul_settings, round_to_tf32
from calls import LINEAR, Call
from tiles import force_tile, list_sm80_tiles, list_sm90_tiles, list_tf32x3, name_raster

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("choose_freely")]

ops = torch.ops.cutlass_fused
# M, N, K
SHAPES = (
    (1, 264, 256),  # one row
    (33, 72, 40),  # smaller than a tile in every direction
    (133, 264, 96),  # ragged last tiles
    (257, 521, 136),  # N is odd: rows of y and c begin anywhere
    (65, 1, 64),  # one column
    (70, 136, 2056),  # few tiles, a long K that no stage divides
    (16, 4096, 1024),  # few rows: tiles that slice K
    (2100, 1032, 1032),  # more tiles than blocks fit on the GPU
    (40, 50, 32),  # short K: CUDA cores, or cuBLAS
    (40, 200, 32),
    (5, 7, 33),
)
ENGINES = ("", "tf32x3", "split_rows", "sm80", "cublas")
SCALES = list(itertools.product((0.0, 1.0, -1.0, 0.5, 2.0), (1.0, -1.0, 0.5, 2.0)))
# c of every shape that broadcasts, and of other strides.
C_KINDS = {
    "matrix": lambda m, n: draw(m, n),
    "row": lambda m, n: draw(n),
    "column": lambda m, n: draw(m, 1),
    "one row": lambda m, n: draw(1, n),
    "number": lambda m, n: draw(),
    "one": lambda m, n: draw(1, 1),
    "transposed": lambda m, n: draw(n, m).t(),
    "strided": lambda m, n: draw(m, 2 * n)[:, ::2],
    "among NaN": lambda m, n: put_among_nan(draw(m, n)),
    "expanded row": lambda m, n: draw(1, n).expand(m, n),
    "expanded column": lambda m, n: draw(m, 1).expand(m, n),
    "expanded number": lambda m, n: draw().expand(m, n),
    "overlapping rows": lambda m, n: draw(m + n).as_strided((m, n), (1, 1)),
}
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda name: name or "chosen")
each_precision = pytest.mark.parametrize("precision", ["ieee", "tf32"])


def draw(*shape):
    return torch.randn(shape, device="cuda")


def put_among_nan(matrix):
    around = matrix.new_full((matrix.shape[0] + 2, matrix.shape[1] + 3), torch.nan)
    view = around[1:-1, 1:-2]
    view.copy_(matrix)
    return view


def turn(matrix):
    return matrix.t().contiguous().t()


def check(y, c, x, weight, beta=1.0, alpha=1.0, precision="ieee"):
    """By the rule of every product: twice eager's error, and one unit in the last place. Under
    "tf32" eager with TF32 spelt out counts too: cuBLAS serves some shapes in fp32."""
    truth = alpha * (x.double() @ weight.double().t())
    truth = truth if beta == 0 else truth + beta * c.double()
    with matmul_settings(precision):
        eager = torch.addmm(c, x, weight.t(), beta=beta, alpha=alpha)
    error = (eager - truth).abs().max()
    if precision == "tf32":
        rounded = round_to_tf32(x), round_to_tf32(weight).t()
        spelt_out = torch.addmm(c, *rounded, beta=beta, alpha=alpha)
        error = torch.maximum(error, (spelt_out - truth).abs().max())
    limit = 2 * error + truth.abs().max() * 2.0**-23
    assert y.shape == truth.shape and y.is_contiguous() and y.dtype == torch.float32
    assert (y - truth).abs().max() <= limit


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@each_precision
@each_engine
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_and_order(shape, engine, precision):
    m, n, k = shape
    for x_turned, weight_turned in itertools.product((False, True), repeat=2):
        x, weight, c = draw(m, k), draw(n, k), draw(m, n)
        x, weight = turn(x) if x_turned else x, turn(weight) if weight_turned else weight
        with force_tile(engine):
            y = ops.addmm(c, x, weight, 0.5, 2.0, precision)
            check(y, c, x, weight, 0.5, 2.0, precision)
            assert torch.equal(ops.addmm(c, x, weight, 0.5, 2.0, precision), y)


def list_forced(x, weight):
    """Every tile that can be forced for the product, in several shares of K where it has them."""
    call = Call(LINEAR, x, weight)
    names = [*list_sm80_tiles(call), "cublas"]
    for tile in list_sm90_tiles(call):
        names += [tile + name_raster(tile, count) for count in (1, 2)]
    for tile in list_tf32x3(x, weight):
        names += [f"{tile}@k{shares}" for shares in (1, 2, 16) if x.shape[1] >= 64 * shares]
    return list(dict.fromkeys(names))


@pytest.mark.parametrize(
    "shape", [(133, 264, 1100), (257, 520, 136), (40, 132, 2056), (1, 264, 256)]
)
def test_every_tile(shape):
    """Whatever computes the sum, its bits are those of the product alone and PyTorch's sum."""
    m, n, k = shape
    x, weight = draw(m, k), draw(n, k)
    for kind in ("matrix", "transposed", "among NaN", "column"):
        c = C_KINDS[kind](m, n)
        for tile in list_forced(x, weight):
            with force_tile(tile):
                y = ops.addmm(c, x, weight)
                product = ops.linear(x, weight)
            assert torch.equal(y, product + c), (tile, kind)


@each_engine
@pytest.mark.parametrize("kind", C_KINDS)
def test_layouts_of_c(kind, engine):
    for m, n, k in ((133, 264, 96), (70, 137, 200), (16, 520, 1024), (40, 72, 32)):
        x, weight = draw(m, k), draw(n, k)
        c = C_KINDS[kind](m, n)
        with force_tile(engine):
            check(ops.addmm(c, x, weight, 2.0, -1.0), c, x, weight, 2.0, -1.0)


@each_precision
@each_engine
@pytest.mark.parametrize("beta, alpha", SCALES)
def test_scales(beta, alpha, engine, precision):
    for m, n, k in ((133, 264, 96), (16, 521, 1024), (40, 72, 32)):
        x, weight, c = draw(m, k), draw(n, k), draw(m, n)
        with force_tile(engine):
            y = ops.addmm(c, x, weight, beta, alpha, precision)
        check(y, c, x, weight, beta, alpha, precision)


@each_engine
def test_what_counts_for_nothing_is_not_read(engine):
    """NaN in c where beta is 0, and in the matrices where alpha is."""
    for m, n, k in ((133, 264, 96), (16, 521, 1024), (40, 72, 32)):
        x, weight, c = draw(m, k), draw(n, k), draw(m, n)
        nan = torch.full_like(c, torch.nan)
        with force_tile(engine):
            for alpha in (1.0, 2.0):
                check(ops.addmm(nan, x, weight, 0.0, alpha), c, x, weight, 0.0, alpha)
            assert ops.addmm(nan, x, weight).isnan().all()
        x.fill_(torch.nan)
        assert torch.equal(ops.addmm(c, x, weight, 2.0, 0.0), 2 * c)
        assert torch.equal(ops.addmm(nan, x, weight, 0.0, 0.0), torch.zeros_like(c))


@each_engine
def test_special_values(engine):
    """NaN and infinities stand where PyTorch has them: of x, of c, of both."""
    for m, n, k in ((133, 264, 96), (16, 520, 1024), (40, 72, 32)):
        x, weight, c = draw(m, k), draw(n, k), draw(m, n)
        x[0, 3], x[1, 5], x[2, 0] = torch.inf, -torch.inf, torch.nan
        c[0, ::2], c[1, 1::2], c[3] = torch.inf, -torch.inf, torch.nan
        c[4, 0], c[5, 1] = torch.inf, -0.0
        expected = torch.addmm(c, x, weight.t(), beta=2, alpha=-1)
        with force_tile(engine):
            y = ops.addmm(c, x, weight, 2.0, -1.0)
        torch.testing.assert_close(y, expected, equal_nan=True, rtol=1e-4, atol=1e-3)
        assert expected.isnan().any() and expected.isinf().any()


def spoil(x, weight):
    """Beside 1e30 the other numbers of a row are lost, and they alone count."""
    weight[:, 5] = 0
    x[::3, 5] = 1e30


@each_precision
@each_engine
def test_repaired_rows(engine, precision):
    """What is added is added once, also where the product is computed again."""
    for (m, n, k), (x_turned, weight_turned) in itertools.product(
        ((150, 136, 200), (300, 500, 40), (65, 33, 1025)),
        itertools.product((False, True), repeat=2),
    ):
        x, weight, c = draw(m, k), draw(n, k), draw(m, n)
        spoil(x, weight)
        x, weight = turn(x) if x_turned else x, turn(weight) if weight_turned else weight
        with force_tile(engine):
            y = ops.addmm(c, x, weight, -1.0, 2.0, precision)
            in_place = c.clone()
            ops.addmm_out(in_place, in_place, x, weight, -1.0, 2.0, precision)
        truth = 2 * (x.double() @ weight.double().t()) - c.double()
        near = 2e-2 if precision == "tf32" else 1e-4
        torch.testing.assert_close(y.double(), truth, rtol=near, atol=near * k**0.5)
        assert torch.equal(in_place, y)


# Where c lies in the memory of y, which is square.
OVERLAPS = {
    "y": lambda y: y,
    "transposed": lambda y: y.t(),
    "a row": lambda y: y[3],
    "a column": lambda y: y[:, 2:3],
    "a number": lambda y: y[7, 7],
    "one row for all": lambda y: y[5].expand_as(y),
}


@each_engine
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_y_may_be_c_or_overlap_it(overlap, engine):
    for n, k in ((264, 96), (521, 300), (1032, 2056), (72, 32)):
        x, weight, y = draw(n, k), draw(n, k), draw(n, n)
        c = OVERLAPS[overlap](y)
        with force_tile(engine):
            expected = ops.addmm(c.clone(), x, weight, 0.5, 2.0)
            ops.addmm_out(y, c, x, weight, 0.5, 2.0)
        assert torch.equal(y, expected)


@each_engine
def test_y_at_any_address(engine):
    for m, n, k in ((133, 264, 96), (16, 520, 1024), (40, 72, 32)):
        x, weight, c = draw(m, k), draw(n, k), draw(m, n)
        memory = torch.full((m * n + 2,), torch.nan, device="cuda")
        y = memory[1:-1].view(m, n)
        with force_tile(engine):
            ops.addmm_out(y, c, x, weight, 2.0, -1.0)
        check(y, c, x, weight, 2.0, -1.0)
        assert memory[[0, -1]].isnan().all()


@each_engine
def test_in_a_graph(engine):
    """In place: each replay adds once more."""
    x, weight, y = draw(133, 96), draw(264, 96), draw(133, 264)
    with force_tile(engine):
        ops.addmm_out(y.clone(), y, x, weight)
        expected = y.clone()
        for _ in range(3):
            expected = ops.addmm(expected, x, weight, 0.5)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ops.addmm_out(y, y, x, weight, 0.5)
    for _ in range(3):
        graph.replay()
    assert torch.equal(y, expected)


def test_small_products_take_no_memory():
    """By the kernel that reads the matrices as they lie: into y, and over c."""
    x, weight, y = draw(512, 256), draw(1024, 256), draw(512, 1024)
    with force_tile("64x64x32.tf32x3@k1"):
        ops.addmm_out(y, y, x, weight)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        ops.addmm_out(y, y, x, weight)
        assert torch.cuda.max_memory_allocated() == before


def test_empty():
    for m, n, k in ((0, 7, 64), (5, 0, 64), (5, 7, 0)):
        c = draw(m, n)
        y = ops.addmm(c, draw(m, k), draw(n, k), 2.0, 3.0)
        assert torch.equal(y, 2 * c)


def test_opcheck():
    x, weight = draw(5, 40), draw(7, 40)
    for c in (draw(7, 5).t(), draw(7), draw()):
        torch.library.opcheck(ops.addmm, (c, x, weight, 0.5, 2.0, "tf32"))
        torch.library.opcheck(ops.addmm_out, (draw(5, 7), c, x, weight, 0.5, 2.0))


def test_bad_input_leaves_y_as_it_was():
    y, c, x, weight = (
        torch.ones(shape, device="cuda") for shape in ((5, 7), (5, 7), (5, 4), (7, 4))
    )
    for changes, message in (
        (
            {"c": c.t()},
            r"c must broadcast to the shape of the product, \(5, 7\), got shape \(7, 5\)",
        ),
        ({"c": c.half()}, "c must be float32, got float16"),
        ({"c": c.cpu()}, "c must be on the device of x"),
        ({"x": x.half(), "weight": weight.half()}, "x must be float32, got float16"),
        ({"x": x[None]}, "x must have 2 dimensions"),
        ({"y": y[:4]}, "y must have the shape of the product"),
        ({"y": draw(7, 5).t()}, "y must be contiguous"),
        ({"y": y.double()}, "y must be float32, got float64"),
        ({"precision": "fp8"}, "precision must be"),
        ({"alpha": 1e300}, "alpha must be within the range of float32, got 1e"),
        ({"beta": -1e39}, "beta must be within the range of float32, got -1e"),
    ):
        words = {"y": y, "c": c, "x": x, "weight": weight} | changes
        with pytest.raises(RuntimeError, match=f"addmm_out: .*{message}"):
            ops.addmm_out(**words)
    assert (y == 1).all()
