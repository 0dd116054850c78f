"""The kernels for the gradient of a scale in front of a batch norm, and the function with them."""

import pytest
import torch
from layouts import misalign_rows, transpose
from torch.autograd import forward_ad

from cutlass_fused import functional
from cutlass_fused.reference import SHARE_OF_SUM

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
EPS = 1e-3
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
SHAPES = [(1, 1), (5, 7), (64, 256), (1000, 1025), (8192, 33)]


def to_host(arguments):
    return [v.cpu() if isinstance(v, torch.Tensor) else v for v in arguments]


def draw(shape, dtype):
    return torch.randn(shape, device="cuda").to(dtype)


def draw_rstd(n):
    """Half of the columns take the sum, and some of the others nearly do."""
    rstd = torch.rand(n, device="cuda") + 1
    rstd[::2] *= 100
    rstd[1::4] = ((0.55 + 0.3 * torch.rand_like(rstd[1::4])) / EPS).sqrt()
    return rstd


@each_dtype
@pytest.mark.parametrize("has_gamma", [True, False])
@pytest.mark.parametrize("shape", [*SHAPES, (3, 5000), (70000, 3)], ids=str)
def test_columns_are_put_back(shape, dtype, has_gamma):
    """As a scale of 1 would have given them; the others stay."""
    torch.manual_seed(0)
    n = shape[1]
    rstd, mean, scale = draw_rstd(n), draw(n, torch.float32), draw(n, dtype)
    gamma = draw(n, dtype) if has_gamma else None
    grad, v = draw(shape, dtype), draw(shape, dtype)
    for grad_y in (grad, misalign_rows(grad), transpose(grad)):
        norm = grad_y, v, mean, rstd
        rows, *sums = ops.batch_norm_gradient(*norm, gamma, scale)
        expected = torch.where(
            rstd.square() * EPS > SHARE_OF_SUM, ops.batch_norm_gradient(*norm, gamma)[0], rows
        )
        ops.unscale_columns(rows, *norm, *sums, EPS, gamma)
        assert torch.equal(rows, expected)


@each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype):
    torch.manual_seed(0)
    n = shape[0]
    rstd, scale, grad_gamma, gamma = draw_rstd(n), *(draw(n, torch.float32) for _ in range(3))
    for weight in (draw(shape, dtype), transpose(draw(shape, dtype))):
        for of_gamma in (gamma, None):
            arguments = (draw(shape, dtype), weight, scale, rstd, grad_gamma, EPS, of_gamma)
            host = to_host(arguments)
            size = (host[0].float() * host[1].float()).abs().sum(1)
            of_scale, expected = ops.scale_gradient(*arguments), ops.scale_gradient(*host)
            limit = torch.where(
                host[3] ** 2 * EPS > SHARE_OF_SUM, 1e-5 * size, 1e-5 * expected.abs()
            )
            assert ((of_scale.cpu() - expected).abs() <= limit).all()
            assert torch.equal(arguments[0].cpu(), host[0])


def test_bad_input():
    x, vector = draw((6, 5), torch.float32), torch.ones(6, device="cuda")
    vectors = vector, vector, vector
    for arguments, message in (
        ((x.t(), x.t(), *vectors, EPS), "x must be contiguous"),
        ((x, x.half(), *vectors, EPS), "weight must have the dtype of x, float32, got float16"),
        ((x, x.t(), *vectors, EPS), r"weight must have the shape of x, \(6, 5\), got shape"),
        ((x, x, *vectors, EPS, vector[:5]), r"gamma must have shape \(6,\), got shape \(5,\)"),
        ((x, x, vector.int(), *vectors[1:], EPS), "scale must be float16, bfloat16 or float32"),
        ((x, x, vector[:2], *vectors[1:], EPS), r"scale must have one element or shape \(6,\)"),
        ((x, x, vector, vector.half(), vector, EPS), "rstd must be float32, got float16"),
    ):
        with pytest.raises(RuntimeError, match=f"scale_gradient: {message}"):
            ops.scale_gradient(*arguments)


# ---- in a backward pass ----


def make_leaves(dtype, elements):
    torch.manual_seed(1)
    m, n, k = 256, 96, 64
    x, weight = draw((m, k), dtype), draw((n, k), dtype) / 8
    scale = torch.rand(elements or n, device="cuda") + 0.5
    if elements == 0:
        scale[:3] = torch.tensor([0.0, 1e-4, -1e-3])
    gamma, beta = torch.rand(n, device="cuda") + 0.5, torch.randn(n, device="cuda")
    return [t.requires_grad_() for t in (x, weight, scale.to(dtype), gamma, beta)]


def differentiate(leaves, grad_y, function):
    x, weight, scale, gamma, beta = leaves
    y = function(x, weight, None, scale, None, None, gamma, beta, True, eps=EPS)
    return torch.autograd.grad(y, leaves, grad_y.to(y.dtype))


def run_eager(x, weight, bias, scale, mean, var, gamma, beta, training, eps):
    v = torch.nn.functional.linear(x, weight, bias) * scale
    return torch.nn.functional.batch_norm(v, mean, var, gamma, beta, training, eps=eps)


@each_dtype
@pytest.mark.parametrize("elements", [0, 1], ids=["columns", "one"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_beside_eager(dtype, elements, compiled):
    """Those of x, weight, scale, gamma and beta, within twice eager's error."""
    leaves = make_leaves(dtype, elements)
    grad_y = draw((256, 96), torch.float32)
    truth_of = [leaf.detach().double().requires_grad_() for leaf in leaves]
    truth = differentiate(truth_of, grad_y, run_eager)
    eager = differentiate(leaves, grad_y, run_eager)
    function = functional.linear_scale_batch_norm
    ours = differentiate(leaves, grad_y, torch.compile(function) if compiled else function)
    eps = torch.finfo(dtype).eps
    for i, (mine, theirs, exact) in enumerate(zip(ours, eager, truth, strict=True)):
        allowed = 2 * (theirs - exact).abs().max() + 4 * eps * exact.abs().max()
        assert (mine - exact).abs().max() <= allowed, i


def test_one_product_serves_weight_and_scale():
    """And no pass over a matrix of the shape of the weight."""
    leaves = make_leaves(torch.bfloat16, 0)
    grad_y = draw((256, 96), torch.bfloat16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        differentiate(leaves, grad_y, functional.linear_scale_batch_norm)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert sum("scale_gradient" in name for name in names) == 1
    assert sum("unscale_columns" in name for name in names) == 1
    assert not any("reduce_kernel" in name for name in names), names


def test_only_the_scale():
    leaves = make_leaves(torch.float32, 0)
    x, weight, scale, gamma, beta = (leaf.detach() for leaf in leaves)
    scale.requires_grad_()
    grad_y = draw((256, 96), torch.float32)
    y = functional.linear_scale_batch_norm(
        x, weight, None, scale, None, None, gamma, beta, True, eps=EPS
    )
    (alone,) = torch.autograd.grad(y, scale, grad_y)
    assert torch.equal(alone, differentiate(leaves, grad_y, functional.linear_scale_batch_norm)[2])


FUNCTIONS = {
    "batch norm": functional.linear_scale_batch_norm,
    "softmax": functional.linear_batch_norm_scale_softmax,
}


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("n", [256, 71])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_vectors_are_rounded_by_one_kernel(dtype, name, n, has_bias):
    """Those of gamma, beta and the scale, with the zeros of the bias."""
    torch.manual_seed(0)
    x, weight = draw((64, 48), dtype), draw((n, 48), dtype).requires_grad_()
    scale, gamma, beta, bias = (draw(n, dtype).requires_grad_() for _ in range(4))
    wide = torch.zeros(n, device="cuda"), torch.ones(n, device="cuda")
    asked = [scale, gamma, beta, *([bias] if has_bias else [])]

    def run(scale, gamma, beta, bias=None):
        statistics = (*wide, gamma, beta, True)
        return FUNCTIONS[name](x, weight, bias, scale, *statistics)

    y = run(*asked)
    grad = torch.randn_like(y)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        found = torch.autograd.grad(y, asked, grad, retain_graph=True)
        torch.cuda.synchronize()
    names = [each.key for each in profile.key_averages()]
    assert sum("cutlass_fused_pointwise" in each for each in names) == 1, names
    assert not any("copy_kernel" in each or "FillFunctor" in each for each in names), names
    # Of fp32 vectors none is rounded. In front of a batch norm the gradient of a scale is noise.
    others = [each.detach().float().requires_grad_() for each in asked]
    expected = torch.autograd.grad(run(*others), others, grad)
    first = 1 if name == "batch norm" else 0
    assert [each.dtype for each in found] == [dtype] * len(asked)
    assert [each.shape for each in found] == [each.shape for each in asked]
    for one, other in list(zip(found, expected, strict=True))[first:3]:
        assert (one - other).norm() <= 4 * torch.finfo(dtype).eps * other.norm()
    assert not has_bias or not found[-1].any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rounded_gradients_keep_their_tangents(name):
    torch.manual_seed(0)
    half = torch.bfloat16
    x, weight = draw((64, 48), half), draw((40, 48), half).requires_grad_()
    asked = [draw(40, half).requires_grad_() for _ in range(3)]
    statistics = torch.zeros(40, device="cuda"), torch.ones(40, device="cuda")
    y = FUNCTIONS[name](x, weight, None, asked[0], *statistics, *asked[1:], True)
    grad, tangent = torch.randn_like(y), torch.randn_like(y)
    expected = torch.autograd.grad(y, asked, tangent, retain_graph=True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(grad, tangent)
        found = torch.autograd.grad(y, asked, dual)
        tangents = [forward_ad.unpack_dual(each).tangent for each in found]
    assert all(each is not None for each in tangents)
    first = 1 if name == "batch norm" else 0  # in front of which that of a scale is noise
    for one, other in list(zip(tangents, expected, strict=True))[first:]:
        assert (one - other).norm() <= 0.05 * other.norm()
