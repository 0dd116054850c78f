"""The gradient of the scale in front of a batch norm, on which y hardly depends: of every size."""

import pytest
import torch
from norm_functions import FUSED, compare_with_plain, differentiate, make_leaves

fused = pytest.mark.parametrize("function", FUSED, ids=str)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


@pytest.mark.parametrize("scale", ["some zero", "zero"])
@in_train_and_eval
@fused
def test_gradient_of_a_zero_scale(function, training, scale):
    """v = z * scale does not tell z where the scale is 0."""
    compare_with_plain(function, make_leaves(function, scale=scale), training)


@pytest.mark.parametrize("size", [1e-8, 1e-3, 1.0, 1e3, 1e8])
@pytest.mark.parametrize("eps", [1e-12, 1e-5, 1.0])
def test_gradient_of_scale_of_any_size(size, eps):
    """Far above eps it all but vanishes, far below it does not; the sum over the rows of its terms
    would cancel in one case, the closed form be inexact in the other."""
    (function, _) = FUSED
    leaves = make_leaves(function)
    with torch.no_grad():
        leaves["scale"].mul_(size)
    _, ours, _ = differentiate(function.ours, leaves, True, eps=eps)
    _, plain, _ = differentiate(function.plain, leaves, True, eps=eps)
    place = [name for name in leaves].index("scale")
    terms = 1.0 / max(size, eps**0.5)  # what is added up, in size
    torch.testing.assert_close(ours[place], plain[place], rtol=1e-6, atol=1e-13 * terms)


def differentiate_scale(run, leaves, eps):
    _, grads, _ = differentiate(run, leaves, True, statistics=(None, None), eps=eps)
    return grads[list(leaves).index("scale")].double()


def in_float64(leaves):
    return {name: t.detach().double().requires_grad_() for name, t in leaves.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", ["(N,)", "(1,)"])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-8, 3e-3, 1e-2, 1.0, 30.0])
@pytest.mark.parametrize("eps", [1e-5, 1.0])
def test_rounded_gradient_of_scale(size, eps, shape, dtype):
    """The variance far below eps, beside it and far above."""
    (function, _) = FUSED
    leaves = make_leaves(function, dtype, m=64, scale=shape)
    with torch.no_grad():
        leaves["scale"].mul_(size)
    ours = differentiate_scale(function.ours, leaves, eps)
    truth = differentiate_scale(function.plain, in_float64(leaves), eps)
    tolerance = 16 * torch.finfo(dtype).eps * truth.abs().max().item()
    torch.testing.assert_close(ours, truth, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", ["(N,)", "(1,)"])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-8, 1e-3])
def test_large_bias_does_not_reach_the_gradient_of_scale(size, shape):
    """The mean takes the bias out, but sum(grad_v * z) would round at its size. The truth is that
    of the model without it."""
    (function, _) = FUSED
    leaves = make_leaves(function, torch.float32, m=64, scale=shape)
    with torch.no_grad():
        leaves["scale"].mul_(size)
        leaves["bias"].zero_()
        truth = in_float64(leaves)
        leaves["bias"].add_(1e4)
    ours = differentiate_scale(function.ours, leaves, 1.0)
    truth = differentiate_scale(function.plain, truth, 1.0)
    tolerance = 16 * torch.finfo(torch.float32).eps * truth.abs().max().item()
    torch.testing.assert_close(ours, truth, rtol=0, atol=tolerance)
