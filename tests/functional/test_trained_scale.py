"""linear_scale_leaky_relu with a scale that is trained: on a GPU it is a program, here beside the
Function that serves all else."""

import pytest
import torch

from cutlass_fused.functional import _linear_scale_leaky_relu as leaky
from cutlass_fused.functional import linear_scale_leaky_relu

M, N, K = 5, 24, 16


def run(scale_shape, has_bias, slope, dtype, **options):
    """The result, its gradients, and those of a function of them, by everything that has one."""
    torch.manual_seed(0)
    x, weight = torch.randn(M, K, dtype=dtype), torch.randn(N, K, dtype=dtype)
    bias = torch.randn(N, dtype=dtype) if has_bias else None
    given = [x, weight, bias, torch.randn(scale_shape, dtype=dtype)]
    leaves = [each.requires_grad_() for each in given if each is not None]
    y = linear_scale_leaky_relu(*given, slope, **options)
    first = torch.autograd.grad(
        y, leaves, torch.linspace(-1, 1, N).expand_as(y).to(y), create_graph=True
    )
    second = torch.autograd.grad(sum(each.square().sum() for each in first), leaves)
    return [y, *first, *second]


@pytest.mark.parametrize("out_dtype", [None, torch.float32])
@pytest.mark.parametrize("slope", [0.1, -0.3, 0.0, 1.0])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("scale_shape", [(), (1,), (N,)], ids=str)
def test_the_program_computes_the_same(scale_shape, has_bias, slope, out_dtype, monkeypatch):
    dtype = torch.float64 if out_dtype is None else torch.float32
    given, used = (scale_shape, has_bias, slope, dtype), []
    expected = run(*given, out_dtype=out_dtype)
    make = leaky.make_trained
    monkeypatch.setattr(leaky, "is_plain_training", lambda *tensors: True)
    monkeypatch.setattr(leaky, "make_trained", lambda: used.append(1) or make())
    found = run(*given, out_dtype=out_dtype)
    assert used == [1]
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_what_the_program_is_asked_with(monkeypatch):
    """Nothing where the scale is not trained, and what is on a CPU stays with the Function."""
    asked = []
    is_plain = leaky.is_plain_training
    monkeypatch.setattr(leaky, "is_plain_training", lambda *t: asked.append(t) or is_plain(*t))
    monkeypatch.setattr(leaky, "make_trained", lambda: pytest.fail("it is none for a GPU"))
    run((N,), True, 0.1, torch.float64)
    assert len(asked) == 1
    x, weight = torch.randn(M, K, requires_grad=True), torch.randn(N, K)
    linear_scale_leaky_relu(x, weight, None, torch.randn(N), 0.1).sum().backward()
    assert len(asked) == 1
