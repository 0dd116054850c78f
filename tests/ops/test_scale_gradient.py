"""The gradient of a scale in front of a batch norm, on the CPU: references, fakes, bad input."""

import pytest
import torch

from cutlass_fused.reference import SHARE_OF_SUM

ops = torch.ops.cutlass_fused
M, N, K = 40, 6, 5
EPS = 1e-3
# Of z: where scale * spread is far below sqrt(eps), nothing cancels in the gradient of scale.
SCALE = torch.tensor([1.0, -2.0, 0.0, 1e-4, 0.5, 3.0], dtype=torch.float64)


def make(dtype=torch.float64):
    torch.manual_seed(0)
    wide = torch.promote_types(dtype, torch.float32)
    x, weight = torch.randn(M, K).to(dtype), torch.randn(N, K).to(dtype)
    gamma, grad_y = torch.rand(N, dtype=wide) + 0.5, torch.randn(M, N, dtype=wide)
    return x, weight, SCALE.to(wide), gamma, grad_y


def differentiate(x, weight, scale, gamma, grad_y):
    """The gradients of weight and scale, by the ops."""
    v = (x.to(scale.dtype) @ weight.to(scale.dtype).t()) * scale
    mean, rstd = v.mean(0), (v.var(0, correction=0) + EPS).rsqrt()
    norm = grad_y, v, mean, rstd
    rows, grad_gamma, grad_beta = ops.batch_norm_gradient(*norm, gamma, scale)
    ops.unscale_columns(rows, *norm, grad_gamma, grad_beta, EPS, gamma)
    product = rows.to(x.dtype).t() @ x
    return product, ops.scale_gradient(product, weight, scale, rstd, grad_gamma, EPS, gamma)


def test_gradients_of_float64():
    x, weight, scale, gamma, grad_y = make()
    leaves = [weight.clone().requires_grad_(), scale.clone().requires_grad_()]
    v = (x @ leaves[0].t()) * leaves[1]
    y = torch.nn.functional.batch_norm(v, None, None, gamma, training=True, eps=EPS)
    expected = torch.autograd.grad(y, leaves, grad_y)
    for result, truth in zip(differentiate(x, weight, scale, gamma, grad_y), expected, strict=True):
        torch.testing.assert_close(result, truth)


def test_both_ways_are_taken():
    x, weight, scale, _, _ = make()
    var = ((x @ weight.t()) * scale).var(0, correction=0)
    share = EPS / (var + EPS)
    assert (share > SHARE_OF_SUM).tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize("has_gamma", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_columns_are_put_back(dtype, has_gamma):
    """Bit for bit as a scale of 1 would have given them; the others stay."""
    _, _, scale, gamma, _ = make(dtype)
    v, grad_y = ((torch.randn(M, N).to(scale.dtype) * s).to(dtype) for s in (scale, 1))
    wide = v.to(scale.dtype)
    mean, rstd = wide.mean(0), (wide.var(0, correction=0) + EPS).rsqrt()
    norm, gamma = (grad_y, v, mean, rstd), gamma if has_gamma else None
    rows, *sums = ops.batch_norm_gradient(*norm, gamma, scale)
    unscaled, scaled = ops.batch_norm_gradient(*norm, gamma)[0], rows.clone()
    ops.unscale_columns(rows, *norm, *sums, EPS, gamma)
    put_back = rstd.square() * EPS > SHARE_OF_SUM
    assert put_back.tolist() == [False, False, True, True, False, False]
    assert torch.equal(rows, torch.where(put_back, unscaled, scaled))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes(dtype):
    arguments = make(dtype)
    product, of_scale = differentiate(*arguments)
    assert product.dtype == dtype and of_scale.dtype == torch.float32
    truth = differentiate(*(tensor.double() for tensor in arguments))
    size = truth[1].abs().max()
    for result, exact in zip((product, of_scale), truth, strict=True):
        torch.testing.assert_close(result.double(), exact, rtol=5e-2, atol=2e-2 * float(size))


def find_errors_of_one_scale(m: int, seed: int) -> tuple[float, float]:
    """Of the gradient of one scale, by the ops and by eager, in bfloat16, where eps is 0.6 to 0.8
    of the variance of each column."""
    torch.manual_seed(seed)
    x, weight = torch.randn(m, 32).bfloat16(), (torch.randn(48, 32) / 32**0.5).bfloat16()
    scale, gamma = torch.ones(1), torch.rand(48) + 0.5
    grad_y = torch.randn(m, 48).bfloat16()
    eps = 2.3 * float((x.float() @ weight.float().t()).var(0, correction=0).mean())

    def differentiate_plainly(wide):
        leaf = scale.to(wide or torch.float32).requires_grad_()
        given = [t.to(wide) if wide else t for t in (x, weight, gamma, grad_y)]
        v = (given[0] @ given[1].t()) * leaf.to(given[0].dtype)
        y = torch.nn.functional.batch_norm(v, None, None, given[2], training=True, eps=eps)
        return float(torch.autograd.grad(y, leaf, given[3])[0])

    v = ((x.float() @ weight.float().t()) * scale).bfloat16()
    mean, rstd = v.float().mean(0), (v.float().var(0, correction=0) + eps).rsqrt()
    norm = grad_y, v, mean, rstd
    rows, *sums = ops.batch_norm_gradient(*norm, gamma, scale)
    ops.unscale_columns(rows, *norm, *sums, eps, gamma)
    product = (rows.float().t() @ x.float()).bfloat16()
    ours = ops.scale_gradient(product, weight, scale, rstd, sums[0], eps, gamma).sum()
    truth = differentiate_plainly(torch.float64)
    return float(ours) - truth, differentiate_plainly(None) - truth


@pytest.mark.parametrize("m", [64, 512])
def test_one_scale_where_eps_is_most_of_the_variance(m):
    """The sum over a product that is rounded would be nearly as far off as eager's, or farther."""
    errors = torch.tensor([find_errors_of_one_scale(m, seed) for seed in range(24)])
    ours, eager = errors.square().mean(0).sqrt().tolist()
    assert ours < 0.6 * eager


def test_a_gamma_of_ones():
    x, weight, scale, gamma, grad_y = make()
    vectors = scale, torch.full_like(scale, 0.1), gamma
    product = torch.randn(N, K, dtype=torch.float64)
    with_ones = ops.scale_gradient(product.clone(), weight, *vectors, EPS, torch.ones_like(scale))
    assert torch.equal(ops.scale_gradient(product, weight, *vectors, EPS), with_ones)


@pytest.mark.parametrize("shape", [(0, 5), (6, 0)])
def test_empty(shape):
    x, of_columns, of_rows = torch.ones(shape), torch.ones(shape[1]), torch.ones(shape[0])
    ops.unscale_columns(x, x.clone(), x.clone(), *[of_columns] * 4, EPS)
    of_scale = ops.scale_gradient(x, x.clone(), of_rows, of_rows, of_rows, EPS)
    assert of_scale.shape == (shape[0],)


def test_opcheck():
    x, *matrices = torch.randn(3, 6, 5)
    of_columns = torch.rand(4, 5) * 100
    for gamma in (None, torch.rand(5)):
        arguments = (x, *matrices, *of_columns, EPS, gamma)
        torch.library.opcheck(ops.unscale_columns, arguments)
    vectors = torch.rand(6), torch.rand(6) * 100, torch.rand(6)
    for gamma in (None, torch.rand(6)):
        torch.library.opcheck(ops.scale_gradient, (x, torch.randn(6, 5), *vectors, EPS, gamma))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(5)}, "x must have 2 dimensions"),
        ({"x": torch.ones(6, 5).int()}, "x must be"),
        ({"x": torch.ones(5, 6).t()}, "x must be contiguous, as it is written to"),
        ({"weight": torch.ones(6, 5).half()}, "weight must have the dtype of x, float32, got"),
        ({"weight": torch.ones(5, 6)}, r"weight must have the shape of x, \(6, 5\), got shape"),
        ({"scale": torch.ones(5)}, r"scale must have shape \(6,\), got shape \(5,\)"),
        ({"rstd": torch.ones(6).half()}, "rstd must be float32, got float16"),
        ({"grad_gamma": torch.ones(6, 1)}, r"grad_gamma must have shape \(6,\), got shape"),
        ({"gamma": torch.ones(6).int()}, "gamma must be one of float16, .*, got int32"),
    ],
)
def test_bad_input(change, message):
    matrices = {"x": torch.ones(6, 5), "weight": torch.ones(6, 5)}
    vectors = dict.fromkeys(("scale", "rstd", "grad_gamma", "gamma"), torch.ones(6))
    with pytest.raises(RuntimeError, match=f"scale_gradient: {message}"):
        ops.scale_gradient(**matrices | vectors | {"eps": EPS} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(5, 6).t()}, "x must be contiguous, as it is written to"),
        ({"grad_y": torch.ones(6, 5).half()}, "grad_y must have the dtype of x, float32, got"),
        ({"v": torch.ones(5, 6)}, r"v must have the shape of x, \(6, 5\), got shape \(5, 6\)"),
        ({"mean": torch.ones(5).half()}, "mean must be float32, got float16"),
        ({"grad_beta": torch.ones(4)}, r"grad_beta must have shape \(5,\), got shape \(4,\)"),
        ({"gamma": torch.ones(4)}, r"gamma must have shape \(5,\), got shape \(4,\)"),
        ({"rstd": torch.ones(6)}, r"rstd must have shape \(5,\), got shape \(6,\)"),
    ],
)
def test_bad_columns(change, message):
    arguments = dict.fromkeys(("x", "grad_y", "v"), torch.ones(6, 5))
    arguments |= dict.fromkeys(("mean", "rstd", "grad_gamma", "grad_beta"), torch.ones(5))
    with pytest.raises(RuntimeError, match=f"unscale_columns: {message}"):
        ops.unscale_columns(**arguments | {"eps": EPS} | change)
