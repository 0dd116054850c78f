"""The gradient of a softmax, on the CPU: the reference, the fake, bad input."""

import pytest
import torch

softmax_gradient = torch.ops.cutlass_fused.softmax_gradient


def make(shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype), torch.softmax(torch.randn(shape), -1).to(dtype)


@pytest.mark.parametrize("shape", [(7,), (1, 1), (5, 7), (2, 3, 4)])
def test_gradients_of_float64(shape):
    v = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y, x = torch.softmax(v, -1), torch.randn(shape, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, v, x)
    torch.testing.assert_close(softmax_gradient(x, y.detach()), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_is_rounded_once(dtype):
    x, y = make((6, 50), dtype)
    exact = softmax_gradient(x.double(), y.double())
    grad = softmax_gradient(x, y)
    assert grad.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(grad.double(), exact, rtol=eps, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (0,), (3, 0, 4)])
def test_empty(shape):
    assert softmax_gradient(*make(shape)).shape == shape


def test_the_result_is_contiguous():
    x, y = make((5, 7))
    grad = softmax_gradient(x.t(), y.t())
    assert grad.is_contiguous() and grad.shape == (7, 5)
    torch.testing.assert_close(grad, softmax_gradient(x.t().contiguous(), y.t().contiguous()))


def test_what_is_not_finite():
    x = torch.tensor([[torch.inf, 1.0], [torch.nan, 1.0], [1.0, 2.0]])
    grad = softmax_gradient(x, torch.full((3, 2), 0.5))
    assert grad[0].tolist()[1] == -torch.inf and grad[0].isnan().tolist() == [True, False]
    assert grad[1].isnan().all() and grad[2].tolist() == [-0.25, 0.25]


def test_opcheck():
    torch.library.opcheck(softmax_gradient, make((3, 5, 8)))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(()), torch.ones(()), "x must have at least 1 dimension"),
        (torch.ones(5, 7).int(), torch.ones(5, 7).int(), "x must be float16"),
        (torch.ones(5, 7), torch.ones(5, 7).half(), "y must have the dtype of x, float32, got"),
        (
            torch.ones(5, 7),
            torch.ones(7, 5),
            r"y must have the shape of x, \(5, 7\), got shape \(7, 5\)",
        ),
        (
            torch.ones(5, 7),
            torch.ones(1, 5, 7),
            r"y must have the shape of x, \(5, 7\), got shape \(1, 5, 7\)",
        ),
    ],
)
def test_bad_input(x, y, message):
    with pytest.raises(RuntimeError, match=f"softmax_gradient: {message}"):
        softmax_gradient(x, y)
