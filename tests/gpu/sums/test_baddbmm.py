"""Products of a batch and a sum in one op: alpha * x[b] @ weight[b].T + beta * c[b]."""

import itertools

import pytest
import torch
from accuracy import matmul_settings, round_to_tf32
from tiles import force_tile, list_tf32x3

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("choose_freely")]

ops = torch.ops.cutlass_fused
SHAPES = (
    (1, 5, 7, 33),  # a batch of one
    (3, 33, 65, 100),  # one row and column more than a warp has
    (5, 130, 40, 67),  # odd K: no piece of 16 bytes is aligned
    (96, 64, 64, 64),  # attention: many small matrices
    (2, 16, 24, 20000),  # K is cut into parts
    (4, 50, 30, 8),  # short K: plain fp32
    (2, 2100, 2048, 1024),  # one by one
)
ENGINES = ("", "tf32x3", "split_rows", "cublas")
C_KINDS = {
    "batch": lambda b, m, n: draw(b, m, n),
    "matrix": lambda b, m, n: draw(m, n),
    "rows": lambda b, m, n: draw(b, 1, n),
    "columns": lambda b, m, n: draw(b, m, 1),
    "row": lambda b, m, n: draw(n),
    "numbers": lambda b, m, n: draw(b, 1, 1),
    "number": lambda b, m, n: draw(),
    "transposed": lambda b, m, n: draw(b, n, m).mT,
    "another order": lambda b, m, n: draw(m, b, n).transpose(0, 1),
    "strided": lambda b, m, n: draw(b, m, 2 * n)[..., ::2],
    "expanded": lambda b, m, n: draw(m, n).expand(b, m, n),
}
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda name: name or "chosen")


def draw(*shape):
    return torch.randn(shape, device="cuda")


def turn(batch):
    return batch.mT.contiguous().mT


def check(y, c, x, weight, beta=1.0, alpha=1.0, precision="ieee"):
    truth = alpha * (x.double() @ weight.double().mT)
    truth = truth if beta == 0 else truth + beta * c.double()
    with matmul_settings(precision):
        eager = torch.baddbmm(c, x, weight.mT, beta=beta, alpha=alpha)
    error = (eager - truth).abs().max()
    if precision == "tf32":  # cuBLAS serves some shapes in fp32
        rounded = round_to_tf32(x), round_to_tf32(weight).mT
        spelt_out = torch.baddbmm(c, *rounded, beta=beta, alpha=alpha)
        error = torch.maximum(error, (spelt_out - truth).abs().max())
    limit = 2 * error + truth.abs().max() * 2.0**-23
    assert y.shape == truth.shape and y.is_contiguous()
    assert (y - truth).abs().max() <= limit


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@each_engine
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_and_order(shape, engine, precision):
    batch, m, n, k = shape
    for x_turned, weight_turned in itertools.product((False, True), repeat=2):
        x, weight, c = draw(batch, m, k), draw(batch, n, k), draw(batch, m, n)
        x, weight = turn(x) if x_turned else x, turn(weight) if weight_turned else weight
        with force_tile(engine):
            y = ops.baddbmm(c, x, weight, 0.5, 2.0, precision)
        check(y, c, x, weight, 0.5, 2.0, precision)


@pytest.mark.parametrize("shares", [1, 2, 16])
def test_every_tile(shares):
    """Its bits are those of the products alone and PyTorch's sum."""
    x, weight, c = draw(3, 132, 1100), draw(3, 100, 1100), draw(3, 100, 132).mT
    for tile in list_tf32x3(x, weight):
        with force_tile(f"{tile}@k{shares}"):
            y, products = ops.baddbmm(c, x, weight), ops.bmm(x, weight)
        assert torch.equal(y, products + c), tile


@each_engine
@pytest.mark.parametrize("kind", C_KINDS)
def test_layouts_of_c(kind, engine):
    for batch, m, n, k in ((3, 33, 65, 100), (4, 50, 32, 8), (2, 130, 72, 256)):
        x, weight, c = draw(batch, m, k), draw(batch, n, k), C_KINDS[kind](batch, m, n)
        with force_tile(engine):
            check(ops.baddbmm(c, x, weight, 2.0, -1.0), c, x, weight, 2.0, -1.0)


@each_engine
def test_scales_and_what_counts_for_nothing(engine):
    for batch, m, n, k in ((3, 33, 65, 100), (4, 50, 30, 8)):
        x, weight, c = draw(batch, m, k), draw(batch, n, k), draw(batch, m, n)
        nan = torch.full_like(c, torch.nan)
        with force_tile(engine):
            for beta, alpha in itertools.product((1.0, -1.0, 0.5), (1.0, -1.0, 2.0)):
                y = ops.baddbmm(c, x, weight, beta, alpha)
                check(y, c, x, weight, beta, alpha)
            for alpha in (1.0, 2.0):
                check(ops.baddbmm(nan, x, weight, 0.0, alpha), c, x, weight, 0.0, alpha)
        assert torch.equal(ops.baddbmm(c, nan[..., :1], nan.mT[..., :1], 2.0, 0.0), 2 * c)
        assert not ops.baddbmm(nan, nan[..., :1], nan.mT[..., :1], 0.0, 0.0).any()


# Where c lies in the memory of y, whose matrices are square.
OVERLAPS = {
    "y": lambda y: y,
    "transposed": lambda y: y.mT,
    "one matrix for all": lambda y: y[1:2],
    "rows": lambda y: y[:, :1],
    "a matrix": lambda y: y[0],
    "a number": lambda y: y[1, 2, 3],
}


@each_engine
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_y_may_be_c_or_overlap_it(overlap, engine):
    for batch, n, k in ((3, 65, 100), (2, 130, 8), (2, 2052, 1024)):
        x, weight, y = draw(batch, n, k), draw(batch, n, k), draw(batch, n, n)
        c = OVERLAPS[overlap](y)
        with force_tile(engine):
            expected = ops.baddbmm(c.clone(), x, weight, 0.5, 2.0)
            ops.baddbmm_out(y, c, x, weight, 0.5, 2.0)
        assert torch.equal(y, expected)


@each_engine
def test_special_values(engine):
    x, weight, c = draw(3, 40, 50), draw(3, 60, 50), draw(3, 40, 60)
    x[1, 3, 7], weight[2, 5, 9], x[0, 0, 0] = torch.inf, -torch.inf, torch.nan
    c[1, 3, ::2], c[2, 7] = torch.inf, torch.nan
    expected = torch.baddbmm(c, x, weight.mT)
    with force_tile(engine):
        y = ops.baddbmm(c, x, weight)
    torch.testing.assert_close(y, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


@each_engine
def test_in_a_graph(engine):
    """In place: each replay adds once more."""
    x, weight, y = draw(8, 64, 512), draw(8, 72, 512), draw(8, 64, 72)
    with force_tile(engine):
        ops.baddbmm_out(y.clone(), y, x, weight)
        expected = y.clone()
        for _ in range(3):
            expected = ops.baddbmm(expected, x, weight, 0.5)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ops.baddbmm_out(y, y, x, weight, 0.5)
    for _ in range(3):
        graph.replay()
    assert torch.equal(y, expected)


def test_empty():
    for batch, m, n, k in ((0, 5, 7, 64), (3, 0, 7, 64), (3, 5, 0, 64), (3, 5, 7, 0)):
        c = draw(m, n)
        y = ops.baddbmm(c, draw(batch, m, k), draw(batch, n, k), 2.0, 3.0)
        assert torch.equal(y, (2 * c).expand(batch, m, n))


def test_opcheck_and_bad_input():
    x, weight, y = draw(3, 5, 40), draw(3, 7, 40), torch.ones(3, 5, 7, device="cuda")
    for c in (draw(3, 7, 5).mT, draw(7), draw()):
        torch.library.opcheck(ops.baddbmm, (c, x, weight, 0.5, 2.0, "tf32"))
        torch.library.opcheck(ops.baddbmm_out, (y.clone(), c, x, weight, 0.5, 2.0))
    for c, message in (
        (draw(2, 5, 7), r"c must broadcast to the shape of the product, \(3, 5, 7\)"),
        (draw(5, 7).half(), "c must be float32, got float16"),
        (draw(5, 7).cpu(), "c must be on the device of x"),
    ):
        with pytest.raises(RuntimeError, match=f"baddbmm_out: .*{message}"):
            ops.baddbmm_out(y, c, x, weight)
    for name in ("alpha", "beta"):
        with pytest.raises(RuntimeError, match=f"baddbmm_out: {name} must be within the range of"):
            ops.baddbmm_out(y, y, x, weight, **{name: 1e300})
    assert (y == 1).all()
