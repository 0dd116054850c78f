"""Gradients in C++ that are differentiated, in either mode, or mapped: as those in Python."""

import pytest
import torch
from accuracy import matmul_settings
from judge_gradients import judge_norms
from torch.autograd import forward_ad

from cutlass_fused import functional
from cutlass_fused.functional._derived import native
from cutlass_fused.matmul import _native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(isinstance(_native.load(), str), reason=f"{_native.load()}"),
    pytest.mark.filterwarnings("ignore:.*batching rule"),
]

M, N, K = 40, 24, 64  # a product whose error tells TF32 from fp32


def run_norm(function):
    def run(x, weight, bias, scale, gamma, beta, **options):
        statistics = (None, None, gamma, beta, True)
        return function(x, weight, bias, scale, *statistics, **options)

    return run


FUNCTIONS = {
    "linear": (functional.linear, 3),
    "leaky_relu": (
        lambda x, w, b, **options: functional.linear_scale_leaky_relu(x, w, b, 1.5, 0.1, **options),
        3,
    ),
    "scale_batch_norm": (run_norm(functional.linear_scale_batch_norm), 6),
    "softmax": (run_norm(functional.linear_batch_norm_scale_softmax), 6),
}


def is_native(y):
    return type(y.grad_fn).__name__ == "CppFunction"


def make(name):
    torch.manual_seed(0)
    leaves = [torch.randn(M, K), torch.randn(N, K), *torch.rand(4, N) + 0.5]
    return leaves[: FUNCTIONS[name][1]]


def draw_like(y, *more):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*more, *y.shape, generator=generator).to(y)


def take_tangents(y, leaves):
    with forward_ad.dual_level():
        grad = forward_ad.make_dual(*draw_like(y, 2))
        grads = torch.autograd.grad(y, leaves, grad, allow_unused=True)
        parts = [forward_ad.unpack_dual(grad) for grad in grads]
    return [torch.zeros_like(primal) if part is None else part for primal, part in parts]


def take_batch(y, leaves):
    return torch.autograd.grad(y, leaves, draw_like(y, 3), is_grads_batched=True)


def map_gradients(y, leaves, **options):
    return torch.func.vmap(lambda grad: torch.autograd.grad(y, leaves, grad, **options))(
        draw_like(y, 3)
    )


def map_recorded_gradients(y, leaves):
    grads = map_gradients(y, leaves, create_graph=True)
    return torch.autograd.grad(sum(grad.square().sum() for grad in grads), leaves[:2])


def differentiate_twice(y, leaves):
    grads = torch.autograd.grad(y, leaves, draw_like(y), create_graph=True)
    return torch.autograd.grad(sum(grad.square().sum() for grad in grads), leaves[:2])


TAKES = [take_tangents, take_batch, map_gradients, map_recorded_gradients, differentiate_twice]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_python(name, take, dtype, monkeypatch):
    rounded = [leaf.to(dtype) for leaf in make(name)]

    def run(device, dtype):
        leaves = [leaf.to(device, dtype).requires_grad_() for leaf in rounded]
        y = FUNCTIONS[name][0](*leaves, precision="ieee")
        return is_native(y), dict(enumerate(take(y, leaves)))

    with matmul_settings("tf32"):
        is_ours, mine = run("cuda", dtype)
        monkeypatch.setattr(native, "is_served", lambda *_: False)
        is_theirs, expected = run("cuda", dtype)
    assert is_ours and not is_theirs
    _, truth = run("cpu", torch.float64)
    assert all(grad.isfinite().all() for grad in truth.values())
    assert mine[1].norm() > 0
    on_host = ({i: grad.cpu() for i, grad in grads.items()} for grads in (mine, expected))
    judge_norms(*on_host, truth)
