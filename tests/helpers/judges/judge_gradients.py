"""The judge's rule for a function's result and its gradients, by name."""

from __future__ import annotations

import torch
from accuracy import ulp


def judge_all(ours, eager, truth) -> None:
    """Each tensor within twice eager's largest error plus one ulp; truth is in float64.

    Gradients of vectors are sums over the rows, and few: it is luck how little eager's order of the
    sum loses. For them it is one ulp of what is summed, about four times the largest sum; for a
    single number, the sum over all elements, 16 times.
    """
    assert ours.keys() == eager.keys() == truth.keys()
    for name, exact in truth.items():
        mine, theirs = ours[name], eager[name]
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), name
        error, eager_error = (mine.double() - exact).abs(), (theirs.double() - exact).abs()
        size = exact.abs().max() * (16 if exact.numel() == 1 else 4 if exact.dim() < 2 else 1)
        limit = 2 * eager_error.max() + ulp(size, mine.dtype)
        worst = error.argmax()
        assert error.max() <= limit, (
            f"gradient of {name}, element {int(worst)}: ours {mine.flatten()[worst].item()!r}, "
            f"eager {theirs.flatten()[worst].item()!r}, "
            f"truth {exact.flatten()[worst].item()!r}, limit {limit.item()!r}"
        )


def judge_norms(ours, eager, truth) -> None:
    """The same of norms: derivatives of gradients are sums of many gradients, of which it is luck
    how near a single one comes."""
    assert ours.keys() == eager.keys() == truth.keys()
    for name, exact in truth.items():
        mine, theirs = ours[name], eager[name]
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), name
        error, eager_error = (mine.double() - exact).norm(), (theirs.double() - exact).norm()
        limit = 2 * eager_error + 4 * torch.finfo(mine.dtype).eps * exact.norm()
        assert error <= limit, f"{name}: ours {error}, eager {eager_error}, of {exact.norm()}"


def differentiate(run, leaves, grad_y) -> dict[str, torch.Tensor]:
    """y = run() and the gradient of every leaf, by name."""
    y = run()
    grads = torch.autograd.grad(y, list(leaves.values()), grad_y.to(y.dtype))
    return {"y": y.detach(), **dict(zip(leaves, grads, strict=True))}
