"""Programs of rows with gradients in C++ on the GPU: their values."""

import pytest
import torch
import torch.nn.functional as F
from accuracy import matmul_settings
from judge_gradients import differentiate, judge_norms

from cutlass_fused import epilogue
from cutlass_fused.matmul import _native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(isinstance(_native.load(), str), reason=f"{_native.load()}"),
]


@epilogue
def softmax(acc, bias):
    return F.softmax(F.gelu(acc + bias), dim=-1)


@epilogue
def log_sum_exp(acc, bias):
    return F.gelu(torch.logsumexp(acc + bias, 1, keepdim=True))


@epilogue
def norm(acc, bias):
    return F.silu(F.layer_norm(acc + bias, acc.shape[1:]))


@epilogue
def windows(acc, bias):
    return F.gelu(F.avg_pool1d(acc + bias, 2)) * 2.0


FUNCTIONS = {"softmax": softmax, "log_sum_exp": log_sum_exp, "norm": norm, "windows": windows}
SHAPES = [((70, 64), 72), ((3, 33, 100), 130), ((1, 512), 8), ((1024, 512), 768), ((5, 16), 1)]


def draw(shape, n, dtype):
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*size, scale=1.0):
        drawn = torch.randn(size, generator=generator, device="cuda") * scale
        return drawn.to(dtype).requires_grad_()

    weight = normal(n, shape[-1], scale=shape[-1] ** -0.5)
    return {"x": normal(*shape), "weight": weight, "bias": normal(n)}


def run_plain(function, x, weight, bias):
    z = F.linear(x, weight)
    y = function.__wrapped__(z.reshape(-1, z.shape[-1]), bias)
    return y.reshape(*x.shape[:-1], -1)


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "n"), SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name, shape, n, dtype, precision):
    if name == "windows" and n % 2:
        pytest.skip("windows of two columns")
    function, leaves = FUNCTIONS[name], draw(shape, n, dtype)

    def run():
        x, weight, bias = leaves.values()
        return function(x, weight, bias=bias, precision=precision)

    y = run()
    assert type(y.grad_fn).__name__ == "CppFunction"
    grad_y = torch.randn(y.shape, device="cuda")
    mine = differentiate(run, leaves, grad_y)
    with matmul_settings(precision):
        eager = differentiate(lambda: run_plain(function, *leaves.values()), leaves, grad_y)
    wide = {key: leaf.detach().double().requires_grad_() for key, leaf in leaves.items()}
    truth = differentiate(
        lambda: run_plain(function, *wide.values()), wide, grad_y.to(dtype).double()
    )
    judge_norms(mine, eager, truth)


@epilogue
def affine_norm(acc, bias, gamma, beta):
    return F.layer_norm(acc + bias, acc.shape[1:], gamma, beta)


def make_affine_norm(m, n, k):
    leaves = draw((m, k), n, torch.bfloat16)
    for name in ("gamma", "beta"):
        leaves[name] = torch.rand(n, device="cuda").bfloat16().requires_grad_()
    return leaves, lambda: affine_norm(*list(leaves.values())[:2], **dict(list(leaves.items())[2:]))


def test_all_sums_by_one_kernel():
    """Of the bias, and of both vectors of the norm."""
    leaves, run = make_affine_norm(512, 256, 64)
    y = run()
    grad, asked = torch.randn_like(y), list(leaves.values())
    torch.autograd.grad(y, asked, grad, retain_graph=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.autograd.grad(y, asked, grad)
        torch.cuda.synchronize()
    names = [each.key for each in profile.key_averages()]
    assert sum("cutlass_fused_pointwise" in name for name in names) == 1, names
    assert not any("at::native::reduce_kernel" in name for name in names), names


def test_sums_are_rounded_once():
    """In fp32 until then, of many rows; the same in each call."""
    leaves, run = make_affine_norm(16384, 128, 32)
    y = run()
    grad = torch.rand_like(y)
    asked = [leaves[name] for name in ("gamma", "beta")]
    found = torch.autograd.grad(y, asked, grad, retain_graph=True)
    again = torch.autograd.grad(y, asked, grad)
    assert all(map(torch.equal, found, again))
    truth = grad.double().sum(0)
    eps = torch.finfo(torch.bfloat16).eps
    assert ((found[1].double() - truth).abs() <= (eps / 2 + 2.0**-20) * truth).all()


@epilogue
def biased(acc, bias):
    return acc + bias


def test_captured_as_the_first_of_its_kind():
    """Nothing is linked in a capture: PyTorch adds up."""
    x, weight, bias = draw((96, 40), 74, torch.float16).values()
    # Such sums do not come with the library, and no other test has them.
    bias = bias.detach().float().requires_grad_()
    grad = torch.randn(96, 74, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.autograd.grad(biased(x, weight, bias=bias), [x, weight], grad)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            y = biased(x, weight, bias=bias)
            (found,) = torch.autograd.grad(y, [bias], grad)
    assert type(y.grad_fn).__name__ == "CppFunction"
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(found, grad.sum(0))
