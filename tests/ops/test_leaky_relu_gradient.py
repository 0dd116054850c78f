"""The gradient in front of LeakyReLU, on the CPU: the reference, the fake, bad input."""

import pytest
import torch

leaky_relu_gradient = torch.ops.cutlass_fused.leaky_relu_gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_values(dtype):
    x, positive = torch.randn(5, 7).to(dtype), torch.rand(5, 7) > 0.5
    grad, sums = leaky_relu_gradient(x, positive, 2.0, -0.5)
    exact = torch.where(positive, x * 2.0, x * -0.5)
    assert torch.equal(grad, exact)
    assert sums.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(sums, exact.to(sums.dtype).sum(0))


@pytest.mark.parametrize("shape", [(0, 7), (5, 0)])
def test_empty(shape):
    grad, sums = leaky_relu_gradient(torch.ones(shape), torch.ones(shape).bool(), 2.0, 1.0)
    assert grad.shape == shape and torch.equal(sums, torch.zeros(shape[1]))


def test_opcheck():
    torch.library.opcheck(
        leaky_relu_gradient, (torch.randn(5, 8), torch.rand(5, 8) > 0.5, 1.0, 0.1)
    )


@pytest.mark.parametrize(
    ("x", "positive", "message"),
    [
        (torch.ones(7), torch.ones(7).bool(), "x must have 2 dimensions"),
        (torch.ones(5, 7).int(), torch.ones(5, 7).bool(), "x must be float16"),
        (torch.ones(5, 7), torch.ones(5, 7), "positive must be bool, got float32"),
        (
            torch.ones(5, 7),
            torch.ones(7, 5).bool(),
            r"positive must have the shape of x, \(5, 7\), got shape \(7, 5\)",
        ),
    ],
)
def test_bad_input(x, positive, message):
    with pytest.raises(RuntimeError, match=f"leaky_relu_gradient: {message}"):
        leaky_relu_gradient(x, positive, 1.0, 0.1)
