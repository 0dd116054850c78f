"""A product written to a tensor of the caller's, on the CPU: the reference, the fake, bad input."""

import pytest
import torch

linear_out = torch.ops.cutlass_fused.linear_out


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(5, 7, 11), (1, 1, 1), (0, 7, 11), (5, 0, 11), (5, 7, 0)])
def test_what_it_writes(shape, bias):
    m, n, k = shape
    x, weight = torch.randn(m, k), torch.randn(n, k)
    bias = torch.randn(n) if bias else None
    y = torch.full((m, n), torch.nan)
    assert linear_out(y, x, weight, bias, "tf32") is None
    assert torch.equal(y, torch.ops.cutlass_fused.linear(x, weight, bias))


def test_leading_dimensions_and_a_wider_result():
    x, weight = torch.randn(2, 3, 8).bfloat16(), torch.randn(4, 8).bfloat16()
    y = torch.empty(2, 3, 4)
    linear_out(y, x, weight)
    assert torch.equal(y, torch.ops.cutlass_fused.linear(x, weight, out_dtype=torch.float32))


def test_opcheck():
    x, weight = torch.randn(5, 8), torch.randn(7, 8)
    torch.library.opcheck(linear_out, (torch.empty(5, 7), x, weight, torch.randn(7), "tf32"))
    torch.library.opcheck(linear_out, (torch.empty(5, 7), x, weight))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.ones(5, 8), r"y must have the shape of the product, \(5, 7\), got shape \(5, 8\)"),
        (torch.ones(35), "y must have the shape"),
        (torch.ones(5, 7).double(), "y must be float32 or have x's dtype, got float64"),
        (torch.ones(7, 5).t(), r"y must be contiguous, got strides \(1, 5\)"),
    ],
)
def test_bad_input(y, message):
    before = y.clone()
    with pytest.raises(RuntimeError, match=f"linear_out: .*{message}"):
        linear_out(y, torch.ones(5, 3), torch.ones(7, 3))
    assert torch.equal(y, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": torch.ones(6)}, r"bias must have shape \(N,\) = \(7,\), got \(6,\)"),
        ({"precision": "fp32"}, "precision must be 'ieee' or 'tf32', got 'fp32'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(RuntimeError, match=f"linear_out: {message}"):
        linear_out(torch.ones(5, 7), torch.ones(5, 3), torch.ones(7, 3), **options)
