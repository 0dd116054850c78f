"""A product and a sum on the CPU: the reference, the fake, and bad input."""

import itertools

import pytest
import torch

ops = torch.ops.cutlass_fused
M, N, K, BATCHES = 5, 7, 11, 3
# Every shape that broadcasts to the product's.
SHAPES = [(M, N), (N,), (M, 1), (1, N), (1, 1), (1,), ()]
BATCHED = [*SHAPES, (BATCHES, M, N), (BATCHES, 1, N), (1, M, 1), (BATCHES, 1, 1)]
SCALES = list(itertools.product((0.0, 1.0, -1.0, 0.5), (0.0, 1.0, 2.0)))


def make_operands(batched, *, dtype=torch.float32):
    sizes = (BATCHES,) if batched else ()
    return torch.randn(*sizes, M, K, dtype=dtype), torch.randn(*sizes, N, K, dtype=dtype)


def call(c, x, weight, *scales):
    """The op that allocates; the other must give the same."""
    name = "baddbmm" if x.dim() == 3 else "addmm"
    y = getattr(ops, name)(c, x, weight, *scales)
    written = torch.full_like(y, torch.nan)
    assert getattr(ops, f"{name}_out")(written, c, x, weight, *scales) is None
    torch.testing.assert_close(written, y, rtol=0, atol=0, equal_nan=True)
    assert y.is_contiguous()
    return y


@pytest.mark.parametrize("beta, alpha", SCALES)
@pytest.mark.parametrize("batched, shape", [(0, s) for s in SHAPES] + [(1, s) for s in BATCHED])
def test_formula(batched, shape, beta, alpha):
    x, weight = make_operands(batched, dtype=torch.float64)
    c = torch.randn(shape, dtype=torch.float64)
    expected = beta * c + alpha * (x @ weight.mT)
    torch.testing.assert_close(call(c, x, weight, beta, alpha), expected)


@pytest.mark.parametrize("batched", [False, True])
def test_what_counts_for_nothing_is_not_read(batched):
    """As PyTorch defines it: NaN in c where beta is 0, and in the matrices where alpha is."""
    x, weight = make_operands(batched)
    nan = torch.full((M, N), torch.nan)
    torch.testing.assert_close(call(nan, x, weight, 0.0, 2.0), 2 * (x @ weight.mT))
    c = torch.randn(M, N)
    y = call(c, torch.full_like(x, torch.nan), weight, 2.0, 0.0)
    assert torch.equal(y, (2 * c).expand(y.shape))
    assert call(nan, x, weight).isnan().all()


@pytest.mark.parametrize("batched", [False, True])
def test_strides_of_c(batched):
    x, weight = make_operands(batched)
    expected = call(torch.zeros(()), x, weight)
    for c in (
        torch.randn(N, M).t(),
        torch.randn(M, 2 * N)[:, ::2],
        torch.randn(M + 1, N + 1)[1:, 1:],
        torch.randn(1, N).expand(M, N),
        torch.randn(M, 1).expand(M, N),
        torch.randn(()).expand(M, N),
        torch.randn(M + N).as_strided((M, N), (1, 1)),
    ):
        torch.testing.assert_close(call(c, x, weight), expected + c)


@pytest.mark.parametrize("sizes", [(0, N, K), (M, 0, K), (M, N, 0)])
@pytest.mark.parametrize("batches", [(), (BATCHES,), (0,)])
def test_nothing_to_multiply(batches, sizes):
    m, n, k = sizes
    x, weight, c = torch.ones(*batches, m, k), torch.ones(*batches, n, k), torch.randn(m, n)
    y = call(c, x, weight, 2.0, 3.0)
    assert torch.equal(y, (2 * c + 3 * k).expand(*batches, m, n))


@pytest.mark.parametrize("batched", [False, True])
def test_y_may_be_c_or_overlap_it(batched):
    x, weight = make_operands(batched)
    x = torch.randn(*x.shape[:-2], N, K)
    op, out = (ops.baddbmm, ops.baddbmm_out) if batched else (ops.addmm, ops.addmm_out)
    filled = torch.randn(*x.shape[:-1], N)
    for view in (lambda y: y, lambda y: y.mT, lambda y: y[..., 0, :], lambda y: y[..., :1]):
        y = filled.clone()
        c = view(y)
        if batched and c.dim() == 2:
            continue
        expected = op(c.clone(), x, weight, 0.5, 2.0)
        out(y, c, x, weight, 0.5, 2.0)
        assert torch.equal(y, expected)


@pytest.mark.parametrize("batched", [False, True])
def test_opcheck(batched):
    x, weight = make_operands(batched)
    op, out = (ops.baddbmm, ops.baddbmm_out) if batched else (ops.addmm, ops.addmm_out)
    y = torch.empty(*x.shape[:-1], N)
    for c in (torch.randn(N, M).t(), torch.randn(N), torch.randn(())):
        torch.library.opcheck(op, (c, x, weight, 0.5, 2.0, "tf32"))
        torch.library.opcheck(out, (y, c, x, weight, 0.5, 2.0, "tf32"))
    torch.library.opcheck(op, (torch.randn(M, 1), x, weight))


ONES = {"x": (5, 4), "weight": (7, 4), "c": (5, 7), "y": (5, 7)}
BAD = [
    ({"x": torch.ones(4)}, r"x must have 2 dimensions \(M, K\)"),
    ({"x": torch.ones(2, 5, 4)}, r"x must have 2 dimensions \(M, K\)"),
    ({"weight": torch.ones(7, 5)}, "x must have 5 columns"),
    (
        {"c": torch.ones(7, 5)},
        r"c must broadcast to the shape of the product, \(5, 7\), got .*7, 5",
    ),
    ({"c": torch.ones(1, 5, 7)}, "c must broadcast"),
    ({"c": torch.ones(5)}, "c must broadcast"),
    ({"c": torch.ones(5, 7).half()}, "c must be float32, got float16"),
    ({"c": torch.ones(5, 7, dtype=torch.int64)}, "c must be float32, got int64"),
    ({"x": torch.ones(5, 4).half(), "weight": torch.ones(7, 4).half()}, "x must be float32, got"),
    ({"x": torch.ones(5, 4).int(), "weight": torch.ones(7, 4).int()}, "x must be float32, got int"),
    ({"precision": "fp8"}, "precision must be"),
    ({"alpha": 1e300}, "alpha must be within the range of float32, got 1e"),
    ({"beta": -1e39}, "beta must be within the range of float32, got -1e"),
]
BAD_Y = [
    (torch.ones(5, 8), r"y must have the shape of the product, \(5, 7\), got shape \(5, 8\)"),
    (torch.ones(5, 7).double(), "y must be float32, got float64"),
    (torch.ones(7, 5).t(), r"y must be contiguous, got strides \(1, 5\)"),
]


@pytest.mark.parametrize("changes, message", BAD)
def test_bad_input(changes, message):
    words = {name: torch.ones(shape) for name, shape in ONES.items()} | changes
    y, before = words.pop("y"), torch.ones(5, 7)
    with pytest.raises(RuntimeError, match=f"addmm: .*{message}"):
        ops.addmm(**words)
    with pytest.raises(RuntimeError, match=f"addmm_out: .*{message}"):
        ops.addmm_out(y, **words)
    assert torch.equal(y, before)


BAD_BATCHES = [
    ({"x": torch.ones(5, 4)}, r"x must have 3 dimensions \(B, M, K\)"),
    ({"weight": torch.ones(2, 7, 4)}, r"weight must have shape \(B, N, K\) = \(3, \*, 4\)"),
    ({"weight": torch.ones(3, 7, 5)}, r"weight must have shape \(B, N, K\) = \(3, \*, 4\)"),
    ({"c": torch.ones(2, 5, 7)}, r"c must broadcast to the shape of the product, \(3, 5, 7\)"),
    ({"c": torch.ones(1, 3, 5, 7)}, "c must broadcast"),
    ({"c": torch.ones(3, 5, 7).half()}, "c must be float32, got float16"),
    ({"x": torch.ones(3, 5, 4).half(), "weight": torch.ones(3, 7, 4).half()}, "x must be float32"),
    ({"precision": "fp8"}, "precision must be"),
    ({"alpha": -1e300}, "alpha must be within the range of float32, got -1e"),
    ({"beta": 1e39}, "beta must be within the range of float32, got 1e"),
]


@pytest.mark.parametrize("changes, message", BAD_BATCHES)
def test_bad_input_of_batches(changes, message):
    words = {name: torch.ones(3, *shape) for name, shape in ONES.items()} | changes
    y = words.pop("y")
    with pytest.raises(RuntimeError, match=f"baddbmm: .*{message}"):
        ops.baddbmm(**words)
    with pytest.raises(RuntimeError, match=f"baddbmm_out: .*{message}"):
        ops.baddbmm_out(y, **words)
    assert (y == 1).all()


@pytest.mark.parametrize("y, message", BAD_Y)
def test_bad_y(y, message):
    before = y.clone()
    tensors = [torch.ones(ONES[name]) for name in ("c", "x", "weight")]
    with pytest.raises(RuntimeError, match=f"addmm_out: .*{message}"):
        ops.addmm_out(y, *tensors)
    with pytest.raises(RuntimeError, match="baddbmm_out: y must"):
        ops.baddbmm_out(y[None], *(tensor[None] for tensor in tensors))
    assert torch.equal(y, before)
