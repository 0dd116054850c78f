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


FUNCTIONS = {"softmax": softmax, "log_sum_exp": log_sum_exp, "norm": norm}
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
