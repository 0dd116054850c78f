"""The judge of batch norm in training, which writes more than one result, and of ops along rows.

Truth and yardstick are as in accuracy.py, and so are the first two rules, for each result. Then:

3. z, mean, rstd, the running statistics and a y that is no softmax's, each alone:
   max|ours - truth| <= 2 * max|yardstick - truth| + one ulp; for means, of what is summed. Behind
   a product a statistic may also be off by what one ulp of z makes of it.
4. a softmax's y, relative to the truth, element by element, since its mean is only 1/N:
   |ours - truth| <= 2 * max(|yardstick - truth| / truth) * truth + one ulp; below the smallest
   normal number of fp32 any result down to 0 is right. Its rows, summed in float64, are 1 within
   one eps of the output.
5. 16-bit results, element by element: |ours - truth| <= half an ulp + what fp32 arithmetic may lose
   on values that were rounded to 16 bits in front of the statistics.
6. the count is exact.

A few numbers may have no error by luck. There the yardstick of a sum is the worst of several orders
of the rows, and logits may be rounded once more.
"""

from __future__ import annotations

import functools
import math

import torch
from accuracy import (
    ROUNDOFF_TENSOR_CORE_SUM,
    Rejected,
    UnfitYardstick,
    find_product_error,
    round_to_tf32,
    stores_product,
    ulp,
)
from bounds_statistics import (
    Normalized,
    bound_normalized,
    bound_rows,
    bound_softmax,
    bound_values,
    compute_logits,
    compute_values,
)
from calls import NORM_OPS, PRODUCT_OPS, SOFTMAX_OPS, Call
from eager_statistics import run_eager_all

# Results that are sums over the rows of a batch.
SUMS = ("mean", "rstd", "running_mean", "running_var")
# With fewer columns, or fewer numbers, it is luck how large the largest error is.
FEW_COLUMNS = 16
FEW_NUMBERS = 2**15
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


class StatisticsJudge:
    """Truth, yardsticks and limits of one call, computed once for any number of results.

    Tensors of any device; all is computed there. `check` takes what `Call.run_all` returns.
    """

    def __init__(self, call: Call):
        self.call = call
        flat = call.flatten()
        self.truth = flat.in_float64().refer_all()
        self.eager = run_eager_all(flat)
        self.yardsticks = [self.eager, *_vary(flat)]
        self.m, self.n = flat.m, flat.n
        if self.m * self.n:
            self._check_yardstick(self._bound_results(eager=True))

    # ---- limits ----

    @functools.cached_property
    def bounds(self) -> dict[str, torch.Tensor]:
        """What a fused kernel may lose in front of the one rounding, for 16-bit results."""
        return self._bound_results(eager=False)

    @functools.cached_property
    def moment_bounds(self) -> dict[str, torch.Tensor]:
        """What sums on tensor cores may lose of the statistics, of which a running one takes at
        most all."""
        normalized = self._bound_normalized(eager=False)
        return {
            "mean": normalized.mean,
            "rstd": normalized.rstd,
            "running_mean": normalized.mean,
            "running_var": normalized.variance * (self.m / max(self.m - 1, 1)),
        }

    def _bound_values(self, eager: bool) -> torch.Tensor:
        call = self.call.flatten()
        half = call.x.dtype.itemsize == 2
        products = find_product_error(call)
        accumulation = products.eager_sum if eager else ROUNDOFF_TENSOR_CORE_SUM
        # Seen with 129 columns: where 16-bit rows of z are not aligned, PyTorch adds the bias to a
        # product that is rounded already.
        stored = eager and (stores_product(call) or (half and call.n % 8 != 0))
        of_each = products.eager if eager else products.ours
        return bound_values(call, of_each, accumulation, self._find_tail(eager), stored)

    def _find_tail(self, eager: bool) -> torch.dtype:
        """The arithmetic behind the product."""
        call = self.call
        is_narrow = call.x.dtype.itemsize == 2 and call.result_dtype != torch.float32
        return call.x.dtype if eager and is_narrow else torch.float32

    def _bound_normalized(self, eager: bool) -> Normalized:
        roundoff = torch.finfo(self._find_tail(eager)).eps / 2
        return bound_normalized(self.call.flatten(), self._bound_values(eager), roundoff)

    def _bound_results(self, eager: bool) -> dict[str, torch.Tensor]:
        call, roundoff = self.call.flatten(), torch.finfo(self._find_tail(eager)).eps / 2
        if call.op not in (*NORM_OPS, *SOFTMAX_OPS):
            return {"y": bound_rows(call, self.truth["y"], roundoff)}
        if call.op not in NORM_OPS:
            bound = bound_softmax(call, self._bound_values(eager), roundoff)
            return {"y": self.truth["y"] * bound}
        normalized = self._bound_normalized(eager)
        bounds = {"y": normalized.y, "mean": normalized.mean}
        if call.keep_z:
            bounds["z"] = self._bound_values(eager).expand(self.m, self.n)
        if call.op in SOFTMAX_OPS:
            bounds["y"] = self.truth["y"] * bound_softmax(call, normalized.y, roundoff)
        return bounds

    def _check_yardstick(self, bounds):
        for name in bounds.keys() & self.eager.keys() & self.truth.keys():
            eager = self.eager[name]
            limit = bounds[name] + ulp(self.truth[name].abs() + bounds[name], eager.dtype) / 2
            limit = limit + (SMALLEST_NORMAL if name == "y" else 0.0)
            wrong = self._mark_wrong(name, eager, limit)
            if wrong.any():
                what = "eager is outside its own bound"
                self._fail(name, what, wrong, eager, limit, UnfitYardstick)

    def largest_eager_error(self, name: str, relative: bool = False) -> float:
        """That of the worst yardstick that is finite; relative only to numbers that are normal."""
        truth = self.truth[name]
        errors = [0.0]
        for yardstick in self.yardsticks:
            if name in yardstick:
                found = yardstick[name]
                error = (found.double() - truth).abs()
                counted = torch.isfinite(found) & torch.isfinite(truth)
                if relative:
                    counted &= truth >= torch.finfo(found.dtype).tiny
                    error = error / truth
                errors += [float(error[counted].max())] if counted.any() else []
        return max(errors)

    def limit(self, name: str) -> torch.Tensor:
        """The limit of |ours - truth| by rules 3 and 4, per element."""
        truth, dtype = self.truth[name], self.eager[name].dtype
        if name == "y" and self.call.op in SOFTMAX_OPS:
            relative = 2 * self.largest_eager_error(name, relative=True) + self._round_logits()
            return truth * relative + ulp(truth, dtype) + SMALLEST_NORMAL
        finite = torch.isfinite(truth) & torch.isfinite(self.eager[name])
        size = torch.where(finite, truth, 0.0).abs().max()
        if name in ("mean", "running_mean"):
            size = torch.maximum(size, self._size_of_columns())
        if name in SUMS and self.n < FEW_COLUMNS:
            dtype = self.call.result_dtype  # what was stored in front of the statistics
        limit = torch.full_like(truth, 2 * self.largest_eager_error(name) + float(ulp(size, dtype)))
        return limit + self._pass_on_product(name) if name in SUMS else limit

    def _pass_on_product(self, name: str) -> torch.Tensor | float:
        """What the one ulp that rule 3 grants every z does to a statistic of z, per column."""
        call = self.call.flatten()
        if call.op not in PRODUCT_OPS or call.result_dtype.itemsize == 2 or not call.m:
            return 0.0  # every yardstick rounds z to 16 bits too
        values = compute_values(call)
        error = float(
            ulp(torch.where(torch.isfinite(values), values, 0.0).abs().max(), call.result_dtype)
        )
        if name in ("mean", "running_mean"):
            return error
        deviation = (values - values.mean(0)).abs().mean(0)
        variance_error = 2 * deviation * error + error**2
        if name == "rstd":
            return (self.truth["rstd"] ** 3 * variance_error / 2).nan_to_num()
        return (variance_error * (self.m / max(self.m - 1, 1))).nan_to_num()

    def _size_of_columns(self) -> torch.Tensor:
        """The largest root mean square of a column of what is summed."""
        size = compute_values(self.call.flatten()).square().mean(0).sqrt()
        return torch.where(torch.isfinite(size), size, 0.0).max()

    def _round_logits(self) -> float:
        """What one rounding of the logits does, where they are few and may be right by luck."""
        if self.call.op not in NORM_OPS or self.m * self.n >= FEW_NUMBERS:
            return 0.0
        size = compute_logits(self.call).abs()
        return float(ulp(torch.where(torch.isfinite(size), size, 0.0).max(), torch.float32)) / 2

    # ---- verdict ----

    def check(self, results: dict[str, torch.Tensor]) -> None:
        """Raises Rejected, naming the worst element, unless all results pass."""
        assert results.keys() == self.truth.keys()
        for name, ours in results.items():
            self._check_form(name, ours)
            if self.truth[name].numel() == 0:
                continue
            if name == "num_batches_tracked":
                self._check_count(ours)
                continue
            ours = ours.reshape(self.truth[name].shape)
            self._check_non_finite(name, ours)
            self._check_limit(name, "error above the limit", ours, self.limit(name))
            if ours.dtype.itemsize == 2 and name in self.bounds:
                bound = self.bounds[name] + (SMALLEST_NORMAL if name == "y" else 0.0)
                size = torch.maximum(ours.double().abs(), self.truth[name].abs())
                limit = bound + ulp(size, ours.dtype) / 2
                self._check_limit(name, "not one rounding of an accurate value", ours, limit)
            if name == "y" and self.call.op in SOFTMAX_OPS:
                self._check_row_sums(ours)

    def _check_form(self, name, ours):
        call = self.call
        if name in call.updated():
            expected = call.updated()[name]
            form = (tuple(expected.shape), expected.dtype, expected.device)
        else:
            shape = {"y": call.result_shape, "z": call.z_shape}.get(name, (self.n,))
            form = (shape, self.eager[name].dtype, call.x.device)
            if not ours.is_contiguous():
                raise Rejected(f"{call.op}: {name} is not contiguous, strides {ours.stride()}")
        found = (tuple(ours.shape), ours.dtype, ours.device)
        if found != form:
            raise Rejected(f"{call.op}: {name}: expected {form}, got {found}")

    def _check_count(self, ours):
        expected = int(self.eager["num_batches_tracked"])
        if int(ours) != expected:
            raise Rejected(
                f"{self.call.op}: num_batches_tracked must be {expected}, got {int(ours)}"
            )

    def _check_non_finite(self, name, ours):
        for what, mark in (
            ("NaN", torch.isnan),
            ("+infinity", torch.isposinf),
            ("-infinity", torch.isneginf),
        ):
            wrong = mark(ours) != mark(self.eager[name])
            if wrong.any():
                self._fail(name, f"{what} is not where eager has it", wrong, ours)

    def _mark_wrong(self, name, result, limit):
        truth = self.truth[name]
        finite = torch.isfinite(truth) & torch.isfinite(self.eager[name])
        return finite & ~((result.double() - truth).abs() <= limit)

    def _check_limit(self, name, what, ours, limit):
        wrong = self._mark_wrong(name, ours, limit)
        if wrong.any():
            self._fail(name, what, wrong, ours, limit)

    def _check_row_sums(self, ours):
        sums, eps = ours.double().sum(-1), torch.finfo(ours.dtype).eps
        wrong = torch.isfinite(sums) & ((sums - 1).abs() > eps)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise Rejected(f"{self.call.op}: row {row} adds up to {float(sums[row])!r}, not to 1")

    def _fail(self, name, what, wrong, ours, limit=None, kind=Rejected):
        call, truth = self.call, self.truth[name]
        error = (ours.double() - truth).abs()
        excess = (error if limit is None else error - limit).nan_to_num(nan=math.inf)
        worst = int(torch.where(wrong, excess, -math.inf).flatten().argmax())
        place = [int(index) for index in torch.unravel_index(torch.tensor(worst), truth.shape)]

        def show(tensor):
            return repr(tensor.flatten()[worst].item())

        weight = "" if call.weight is None else f" x {tuple(call.weight.shape)}"
        raise kind(
            f"{call.op} {tuple(call.x.shape)}{weight} {call.x.dtype} -> {call.result_dtype}, "
            f"{call.precision}: {name}: {what}, in {int(wrong.sum())} of {wrong.numel()} elements; "
            f"the worst is {place}: ours {show(ours)}, eager {show(self.eager[name])}, "
            f"truth {show(truth)}, limit {'none' if limit is None else show(limit)}"
        )


def _vary(call: Call) -> list[dict[str, torch.Tensor]]:
    """Other yardsticks: TF32 spelt out, and where there are few columns other orders of the rows,
    for the results that do not depend on the order."""
    found = []
    if call.op in PRODUCT_OPS and call.x.dtype == torch.float32 and call.precision == "tf32":
        rounded = call.change(x=round_to_tf32(call.x), weight=round_to_tf32(call.weight))
        found.append(run_eager_all(rounded.change(precision="ieee")))
    if call.op in NORM_OPS and call.m * call.n < FEW_NUMBERS and call.m > 1:
        generator = torch.Generator(call.x.device).manual_seed(0)
        for _ in range(8):
            order = torch.randperm(call.m, generator=generator, device=call.x.device)
            results = run_eager_all(call.change(x=call.x[order]))
            found.append({name: results[name] for name in results if name in SUMS})
    return found
