"""Products of batches on the CPU: the reference, the fake, and bad input."""

import pytest
import torch

bmm = torch.ops.cutlass_fused.bmm


@pytest.mark.parametrize("shape", [(3, 5, 7, 11), (1, 1, 1, 1), (0, 5, 7, 11), (3, 0, 7, 11)])
def test_each_product_of_a_batch(shape):
    batch, m, n, k = shape
    x, weight = torch.randn(batch, m, k), torch.randn(batch, n, k)
    y = bmm(x, weight)
    assert y.shape == (batch, m, n) and y.is_contiguous()
    for own, of_x, of_weight in zip(y, x, weight, strict=True):
        torch.testing.assert_close(own, of_x @ of_weight.t())


def test_an_empty_sum_is_zero():
    assert torch.equal(bmm(torch.ones(2, 3, 0), torch.ones(2, 4, 0)), torch.zeros(2, 3, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_16_bits_are_rounded_once(dtype):
    x, weight = torch.randn(3, 5, 300).to(dtype), torch.randn(3, 7, 300).to(dtype)
    y = bmm(x, weight)
    assert y.dtype == dtype and y.is_contiguous()
    assert torch.equal(y, bmm(x.float(), weight.float()).to(dtype))
    shared = weight[0].t().contiguous().t().expand(3, 7, 300)
    assert torch.equal(bmm(x, shared), bmm(x, shared.contiguous()))


def test_opcheck():
    x, weight = torch.randn(3, 5, 8), torch.randn(7, 8).expand(3, 7, 8)
    torch.library.opcheck(bmm, (x, weight, "tf32"))
    torch.library.opcheck(bmm, (x.transpose(1, 2), torch.randn(3, 6, 5)))
    torch.library.opcheck(bmm, (x.bfloat16(), weight.bfloat16()))


@pytest.mark.parametrize(
    ("x", "weight", "precision", "message"),
    [
        (torch.ones(3, 4), torch.ones(3, 4, 4), "ieee", r"x must have 3 dimensions \(B, M, K\)"),
        (torch.ones(3, 4, 4), torch.ones(4, 4), "ieee", r"weight must have 3 dimensions"),
        (torch.ones(3, 4, 4), torch.ones(2, 4, 4), "ieee", r"= \(3, \*, 4\), got \(2, 4, 4\)"),
        (torch.ones(3, 4, 4), torch.ones(3, 4, 5), "ieee", r"= \(3, \*, 4\), got \(3, 4, 5\)"),
        (torch.ones(3, 4, 4).int(), torch.ones(3, 4, 4).int(), "ieee", "x must be .*, got int32"),
        (
            *(torch.ones(3, 4, 4), torch.ones(3, 4, 4).half(), "ieee"),
            "weight must have the dtype of x, float32, got float16",
        ),
        (torch.ones(3, 4, 4), torch.ones(3, 4, 4), "fp8", "precision must be"),
    ],
)
def test_bad_input(x, weight, precision, message):
    with pytest.raises(RuntimeError, match=f"bmm: .*{message}"):
        bmm(x, weight, precision)
