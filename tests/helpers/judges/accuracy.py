"""The judge: decides whether a result is as accurate as it must be.

Truth is the reference in float64 on the quantised inputs; the yardstick is the PyTorch expression
that a user would write, in the same precision; for TF32 also that with TF32 spelt out, the worse of
both. A result passes when all of these hold:

1. shape, dtype and contiguous layout are those promised;
2. NaN stands exactly where the yardstick has NaN, infinities of the same sign where it has them;
3. max|ours - truth| <= 2 * max|yardstick - truth| + one ulp of the output, in the binade of the
   largest |truth|;
4. 16-bit results, element by element: |ours - truth| <= half an ulp + the bound on the fp32
   accumulation and tail. That is one rounding, at the end. It implies "within one ulp of the
   once-rounded truth plus the bound", and is needed in front of LeakyReLU: a product rounded twice
   stays within that wider band wherever nothing cancels.

So that rule 3 cannot loosen itself, the yardstick must lie within an a-priori bound of the truth
(`UnfitYardstick` is raised if it does not).
"""

from __future__ import annotations

import contextlib
import math
from typing import NamedTuple

import torch
from calls import BATCH_NORM, LEAKY, LINEAR, OPS, Call
from torch.nn import functional as F

from cutlass_fused.epilogues import EPILOGUES

# Unit roundoffs. Tensor cores truncate when they accumulate, hence 2^-23 for their sums.
ROUNDOFF_FP32 = 2.0**-24
ROUNDOFF_TENSOR_CORE_SUM = 2.0**-23
# Both TF32 operands are rounded to 11 significant bits: (1 + 2^-11)^2 - 1.
ROUNDOFF_TF32_PRODUCT = (1 + 2.0**-11) ** 2 - 1
# An operand split into two TF32 parts keeps 22 bits, and small * small is left out.
ROUNDOFF_SPLIT_PRODUCT = 2.0**-21


class ProductError(NamedTuple):
    """What products with inputs of a type and precision may lose: the relative error of each x*w,
    by eager and by ours, and the unit roundoff of eager's sums."""

    eager: float
    ours: float
    eager_sum: float


# THE bounds of Math rows: by the precision of fp32 inputs. Products of 16-bit ones are exact.
PRODUCT_ERRORS = {
    "ieee": ProductError(0.0, ROUNDOFF_SPLIT_PRODUCT, ROUNDOFF_FP32),
    "tf32": ProductError(ROUNDOFF_TF32_PRODUCT, ROUNDOFF_TF32_PRODUCT, ROUNDOFF_TENSOR_CORE_SUM),
}
EXACT_PRODUCTS = ProductError(0.0, 0.0, ROUNDOFF_TENSOR_CORE_SUM)

# Roundings after the dot product: z, bias; scale, multiplier, slope, or mean, eps, root, quotient,
# gamma, beta; and conversions.
TAIL_ROUNDINGS = {op: 3 + 3 * len(EPILOGUES[op].operands) for op in OPS}
TAIL_ROUNDINGS |= {LEAKY: 6, BATCH_NORM: 10}


class Rejected(AssertionError):
    """The judged result is wrong."""


class UnfitYardstick(AssertionError):
    """Eager PyTorch is outside its own a-priori bound: the inputs are no fit measure."""


# ---- yardstick ----


@contextlib.contextmanager
def matmul_settings(precision: str):
    """fp32 products in `precision`, 16-bit ones without 16-bit partial sums; both restored."""
    matmul = torch.backends.cuda.matmul
    wanted = {
        "fp32_precision": precision,
        "allow_fp16_reduced_precision_reduction": False,
        "allow_bf16_reduced_precision_reduction": False,
    }
    before = {name: getattr(matmul, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(matmul, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)


def round_to_tf32(x: torch.Tensor) -> torch.Tensor:
    """The nearest float32 of 11 significant bits, ties to even."""
    bits = x.contiguous().view(torch.int32)
    bits = (bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF
    return bits.view(torch.float32)


def eager_product(call: Call) -> torch.Tensor:
    """z = x @ weight.T + bias. On copies: cuBLAS refuses strides beyond 2^31."""
    x, weight, bias = call.x.contiguous(), call.weight.contiguous(), call.bias
    if is_widened(call):
        if x.device.type == "cuda" and call.k > 0:
            z = torch.mm(x, weight.T, out_dtype=torch.float32)
        else:
            z = x.float() @ weight.float().T
        return z if bias is None else z + bias
    if bias is None or bias.dtype == x.dtype:
        return F.linear(x, weight, bias)
    return F.linear(x, weight) + bias


def _eager_tail(call: Call, z: torch.Tensor) -> torch.Tensor:
    if call.op not in (LEAKY, BATCH_NORM):
        return apply_formula(call, z)
    v = z if call.scale is None else z * call.scale
    if call.op == LEAKY:
        return F.leaky_relu(v * call.multiplier, call.negative_slope)
    y = (v - call.running_mean) / torch.sqrt(call.running_var + call.eps)
    y = y if call.gamma is None else y * call.gamma
    return y if call.beta is None else y + call.beta


def apply_formula(call: Call, z: torch.Tensor) -> torch.Tensor:
    """What the description of the epilogue says, with the operands of the call."""
    epilogue = EPILOGUES[call.op]
    return epilogue.formula(z, *(getattr(call, name) for name in epilogue.names))


def is_widened(call: Call) -> bool:
    """A float32 result of 16-bit inputs: 16-bit intermediate results would be no measure of it."""
    return call.x.dtype.itemsize == 2 and call.out_dtype == torch.float32


def run_eager(call: Call) -> torch.Tensor:
    """The expression a user would write, on the call's own dtypes and device, as a matrix."""
    call = call.flatten()
    with matmul_settings(call.precision):
        z = eager_product(call)
        if is_widened(call):
            call = call.map_tensors(torch.Tensor.float)
        return _eager_tail(call, z).to(call.result_dtype)


def run_tf32(call: Call) -> torch.Tensor:
    """The product with TF32 spelt out: operands rounded, then fp32.

    PyTorch's setting allows TF32 and does not force it: CPUs have none, and cuBLAS may serve
    matrix-vector and unaligned products in fp32. Those are no measure of TF32.
    """
    rounded = call.change(x=round_to_tf32(call.x), weight=round_to_tf32(call.weight))
    return run_eager(rounded.change(precision="ieee"))


# ---- bounds ----


def accumulate_roundoff(count: int, roundoff: float) -> float:
    """gamma_n = n u / (1 - n u): the relative error of n successive roundings."""
    return count * roundoff / (1 - count * roundoff)


def smallest_subnormal(dtype: torch.dtype) -> float:
    info = torch.finfo(dtype)
    return info.tiny * info.eps


def bound_error(
    call: Call,
    product: float,
    accumulation: float,
    tail: torch.dtype,
    stored_product: bool = False,
) -> torch.Tensor:
    """A-priori bound on |computed - truth| per element, without the last rounding to the output.

    `product` is the relative error of each x*w, `accumulation` the unit roundoff of their sum, and
    every operation of the tail rounds to the dtype `tail`; with `stored_product` also x @ weight.T
    before the bias is added. The error of z is carried through the tail by the tail's slope.
    """
    call = call.in_float64()
    size, z = call.x.abs() @ call.weight.abs().T, call.x @ call.weight.T
    if call.bias is not None:
        size = size + call.bias.abs()
        z = z.abs() + call.bias.abs() if stored_product else z + call.bias
    z_error = (product + accumulate_roundoff(call.k + 2, accumulation)) * size

    ones = torch.ones((), dtype=torch.float64, device=z.device)
    scale = ones if call.scale is None or call.op == LINEAR else call.scale.abs()
    factor, centre, shift, variance = ones, 0.0, 0.0, ones
    if call.op == LEAKY:
        factor = ones * abs(call.multiplier) * max(1.0, abs(call.negative_slope))
    elif call.op == BATCH_NORM:
        variance = call.running_var + call.eps
        factor = (ones if call.gamma is None else call.gamma.abs()) / variance.sqrt()
        centre = call.running_mean.abs()
        shift = 0.0 if call.beta is None else call.beta.abs()
    elif call.op != LINEAR:
        scale, factor, shift = ones, *find_slope(call, z_error)

    count, roundoff = TAIL_ROUNDINGS[call.op], torch.finfo(tail).eps / 2
    magnitude = ((z.abs() + z_error) * scale + centre) * factor + shift
    # Below the smallest normal number roundings are absolute, also that of variance + eps.
    tiny = smallest_subnormal(tail)
    underflow = count * tiny * (1 + scale) * (1 + factor) + magnitude * tiny / variance
    carried = z_error * scale * factor
    return carried + accumulate_roundoff(count, roundoff) * magnitude + underflow


def find_slope(call: Call, z_error: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest slope of the formula within the error of z, at z and at both ends, and |y|."""
    z = call.x @ call.weight.T
    z = z if call.bias is None else z + call.bias
    slopes = []
    for place in (z - z_error, z, z + z_error):
        place = place.detach().requires_grad_()
        (slope,) = torch.autograd.grad(apply_formula(call, place).sum(), place)
        slopes.append(slope.abs())
    return torch.stack(slopes).amax(0), apply_formula(call, z).abs()


def find_product_error(call: Call) -> ProductError:
    return PRODUCT_ERRORS[call.precision] if call.x.dtype == torch.float32 else EXACT_PRODUCTS


def bound_eager(call: Call) -> torch.Tensor:
    """Eager's own bound: the engine's sum, then a rounding to storage after every operation."""
    error = find_product_error(call)
    return bound_error(
        call,
        product=error.eager,
        accumulation=error.eager_sum,
        tail=torch.float32 if call.out_dtype == torch.float32 else call.x.dtype,
        stored_product=stores_product(call),
    )


def stores_product(call: Call) -> bool:
    """Whether eager rounds the product before it adds the bias: PyTorch leaves biases of another
    dtype or stride, and that of a single column, to a second step."""
    bias = call.bias
    if bias is None:
        return False
    return not (bias.dtype == call.x.dtype and bias.is_contiguous() and bias.numel() > 1)


def bound_fused(call: Call) -> torch.Tensor:
    """What exact products, an fp32 sum and an fp32 tail may lose before the one rounding."""
    return bound_error(call, 0.0, ROUNDOFF_TENSOR_CORE_SUM, torch.float32)


def ulp(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbouring numbers of `dtype` in the binade of |value|, in float64."""
    _, exponent = torch.frexp(value.double().abs())
    spacing = torch.ldexp(torch.full_like(value, torch.finfo(dtype).eps).double(), exponent - 1)
    spacing = torch.where(value == 0, 0.0, spacing)  # frexp gives 0 the exponent of 0.5
    return spacing.clamp(min=smallest_subnormal(dtype))


# ---- verdict ----


class Judge:
    """Truth, yardstick and limits of one call, computed once for any number of results.

    `rows` limits the judgement to these rows of the flattened x (large shapes).
    """

    def __init__(self, call: Call, rows=None):
        self.call, self.rows = call, rows
        self.part = part = call.take_rows(rows)
        self.truth = part.in_float64().refer()
        self.eager = run_eager(part)
        self.finite = torch.isfinite(self.eager) & torch.isfinite(self.truth)
        self.eager_error = self._error(self.eager)
        self.largest_eager_error = self._largest(self.eager_error)
        self.bounds = bound_fused(part) if call.result_dtype.itemsize == 2 else None
        self._check_yardstick(bound_eager(part))
        if part.x.dtype == torch.float32 and part.precision == "tf32":
            tf32_error = self._error(run_tf32(part)).nan_to_num(nan=0.0, posinf=0.0)
            self.largest_eager_error = max(self.largest_eager_error, self._largest(tf32_error))

    def _error(self, result):
        error = (result.double() - self.truth).abs()
        return torch.where(self.finite, error, torch.zeros_like(error))

    @staticmethod
    def _largest(error):
        return float(error.max()) if error.numel() else 0.0

    def _check_yardstick(self, bound):
        limit = bound + ulp(self.truth, self.call.result_dtype) / 2
        wrong = self.finite & ~(self.eager_error <= limit)
        if wrong.any():
            self._fail("eager is outside its own bound", wrong, self.eager, limit, UnfitYardstick)

    def check(self, ours: torch.Tensor) -> None:
        """Raises Rejected, naming the worst element, unless `ours` passes."""
        call = self.call
        found = (tuple(ours.shape), ours.dtype, ours.device)
        expected = (call.result_shape, call.result_dtype, call.x.device)
        if found != expected:
            raise Rejected(f"{call.op}: expected {expected}, got {found}")
        if not ours.is_contiguous():
            raise Rejected(f"{call.op}: the result is not contiguous, strides {ours.stride()}")
        ours = ours.reshape(call.m, call.n)
        ours = ours if self.rows is None else ours[self.rows]
        if ours.numel() == 0:
            return
        self._check_non_finite(ours)
        self._check_largest(ours)
        if self.bounds is not None:
            self._check_elements(ours)

    def check_bound(self, ours: torch.Tensor) -> None:
        """Raises Rejected unless `ours` is within the a-priori bound of the truth. For kernels that
        a user's call of these sizes would not reach: eager may split K there and round less."""
        self._check_non_finite(ours)
        product = find_product_error(self.part).ours
        limit = bound_error(self.part, product, ROUNDOFF_TENSOR_CORE_SUM, torch.float32)
        limit = limit + ulp(self.truth, self.call.result_dtype)
        wrong = self.finite & ~(self._error(ours) <= limit)
        if wrong.any():
            self._fail("error above the a-priori bound", wrong, ours, limit)

    def _check_non_finite(self, ours):
        for what, mark in (
            ("NaN", torch.isnan),
            ("+infinity", torch.isposinf),
            ("-infinity", torch.isneginf),
        ):
            wrong = mark(ours) != mark(self.eager)
            if wrong.any():
                self._fail(f"{what} is not where eager has it", wrong, ours)

    def largest_limit(self) -> float:
        """2 * max|eager - truth| + one ulp of the output."""
        finite_truth = torch.where(self.finite, self.truth, torch.zeros_like(self.truth))
        last_place = ulp(finite_truth.abs().max(), self.call.result_dtype)
        return 2 * self.largest_eager_error + float(last_place)

    def _check_largest(self, ours):
        limit = torch.full_like(self.truth, self.largest_limit())
        wrong = self.finite & ~(self._error(ours) <= limit)
        if wrong.any():
            self._fail("error above twice eager's plus one ulp", wrong, ours, limit)

    def _check_elements(self, ours):
        size = torch.maximum(ours.double().abs(), self.truth.abs())
        limit = self.bounds + ulp(size, self.call.result_dtype) / 2
        wrong = self.finite & ~(self._error(ours) <= limit)
        if wrong.any():
            self._fail("not one rounding of an accurate value", wrong, ours, limit)

    def _fail(self, what, wrong, ours, limit=None, kind=Rejected):
        error = (ours.double() - self.truth).abs()
        excess = (error if limit is None else error - limit).nan_to_num(nan=math.inf)
        worst = int(torch.where(wrong, excess, -math.inf).flatten().argmax())
        row, column = divmod(worst, self.truth.shape[1])
        place = [row if self.rows is None else int(torch.as_tensor(self.rows)[row]), column]
        call = self.call
        raise kind(
            f"{call.op} {tuple(call.x.shape)} x {tuple(call.weight.shape)} {call.x.dtype} -> "
            f"{call.result_dtype}, {call.precision}: {what}, in {int(wrong.sum())} of "
            f"{wrong.numel()} elements; the worst is [row, column] = {place}: "
            f"ours {ours[row, column].item()!r}, eager {self.eager[row, column].item()!r}, "
            f"truth {self.truth[row, column].item()!r}, "
            f"limit {'none' if limit is None else limit[row, column].item()!r}"
        )

    def relative_l2(self, result: torch.Tensor) -> float:
        """||result - truth|| / ||truth||; `result` is a matrix of the judged rows."""
        return float((result.double() - self.truth).norm() / self.truth.norm())
