"""Judges products of x of 16 bits with a weight of float32.

Truth is x @ weight.T in float64; the yardstick is eager PyTorch with x in float32, in the same
precision. Each output lies within the bound of its precision (cutlass_fused.precision), and 16-bit
ones within one rounding more; as a whole the error is at most twice eager's.
"""

import torch
from accuracy import matmul_settings, round_to_tf32

from cutlass_fused.precision import bound_error

# Plain fp32, which multiplies where K is short, and what is not finite.
FP32_SUM = 2.0**-24


def check_product(y, x, weight, bias=None, precision="ieee"):
    """y of any dtype; x, weight and bias as they were given. NaN and infinities lie where they do
    in eager's result."""
    rows = x.reshape(-1, x.shape[-1])
    truth = rows.double() @ weight.double().t()
    size = rows.double().abs() @ weight.double().abs().t()
    eager = run_eager(rows, weight, precision).double()
    if bias is not None:
        truth, eager = truth + bias.double(), (eager.float() + bias.float()).double()
        size = size + bias.double().abs()
    assert y.shape == (*x.shape[:-1], weight.shape[0]) and y.is_contiguous()
    ours = y.reshape(truth.shape).double()
    rounded = eager.to(y.dtype).double()
    assert torch.equal(ours.isnan(), rounded.isnan())
    infinite = rounded.isinf()
    assert torch.equal(ours.isinf(), infinite) and torch.equal(ours[infinite], rounded[infinite])

    k, finite = weight.shape[1], rounded.isfinite()
    error = torch.where(finite, (ours - truth).abs(), 0.0)
    info = torch.finfo(y.dtype)
    bracket = max(bound_error(k, precision), k * FP32_SUM) + 4 * FP32_SUM
    rounding = truth.abs() * info.eps / 2 + info.smallest_normal * info.eps
    limit = bracket * size + rounding
    assert (error <= torch.where(finite, limit, 0.0)).all(), (error / limit).nan_to_num().max()
    eager_error = torch.where(finite, (rounded - truth).abs(), 0.0)
    largest = torch.where(finite, truth, 0.0).abs().max().item()
    most = 2 * eager_error.norm() + info.eps * largest
    assert error.norm() <= most, (error.norm().item(), most.item())


def run_eager(x, weight, precision):
    """With TF32 spelt out, since PyTorch's setting allows it and does not force it."""
    x = x.float()
    if precision == "tf32":
        x, weight = x, round_to_tf32(weight)
    with matmul_settings("ieee"):
        return torch.nn.functional.linear(x, weight)
