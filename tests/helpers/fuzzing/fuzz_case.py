"""A fuzzed case, and the judge of those for which the other judges have no rule of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from accuracy import ROUNDOFF_TENSOR_CORE_SUM, Rejected, accumulate_roundoff, ulp

Results = dict[str, torch.Tensor]
# Nearer to the largest number of a dtype a rounding more or less decides between it and infinity.
NEAR_OVERFLOW = 0.95


class CanaryDied(AssertionError):
    """A call wrote outside of its results."""


class Errors(NamedTuple):
    """Of one result: our largest error, and its limit."""

    ours: float
    limit: float


@dataclasses.dataclass
class Case:
    """One call, with all that it needs.

    run: the call, which returns all that it writes, by name. It changes no tensor of the case, so
        that it may be repeated, and captured.
    make_judge: has `check(results)`, which raises Rejected, and `find_errors(results)`; raises
        UnfitYardstick where eager PyTorch is no measure.
    tiles: those that may be forced.
    explain: of a rejection: the name of what it stems from where that is known, else None.
    form: shape and dtype of the result around which canaries are put; None puts none.
    """

    kind: str
    words: str
    tensors: dict[str, torch.Tensor]
    run: Callable[[], Results]
    make_judge: Callable[[], Any]
    tiles: tuple[str, ...] = ()
    explain: Callable[[Any, Results, Rejected], str | None] = lambda judge, results, error: None
    form: tuple[tuple[int, ...], torch.dtype] | None = None

    @property
    def device(self) -> torch.device:
        return next(iter(self.tensors.values())).device


def find_kinds(numbers: torch.Tensor) -> torch.Tensor:
    """Of each: 0 is finite, 1 NaN, 2 +infinity, 3 -infinity."""
    return numbers.isnan() + 2 * numbers.isposinf() + 3 * numbers.isneginf()


class PairJudge:
    """Beside eager PyTorch, by DESIGN's rule: max|ours - truth| is at most twice eager's, and one
    ulp of the result. NaN and infinities lie where eager has them, or where the truth has them once
    it is rounded: 16-bit steps of eager may overflow where one rounding does not.

    eager: results by name, of each yardstick; the worst of them counts, and the first says where
    there are NaN and infinities. floors: name -> what a limit has more, where a result is a sum of
    terms that cancel.
    """

    def __init__(
        self,
        truth: Results,
        eager: list[Results],
        floors: dict[str, float] | None = None,
        what: str = "",
    ) -> None:
        self.truth, self.eager, self.what = truth, eager, what
        self.floors = floors or {}

    def find_errors(self, results: Results) -> dict[str, Errors]:
        found = {}
        for name, truth in self.truth.items():
            if truth.numel():
                error = self._error(results[name], truth, name)
                found[name] = Errors(float(error.max()), self._limit(name))
        return found

    def _finite(self, name: str) -> torch.Tensor:
        eager, truth = self.eager[0][name], self.truth[name]
        most = NEAR_OVERFLOW * torch.finfo(eager.dtype).max
        return torch.isfinite(truth) & torch.isfinite(eager) & (truth.abs() <= most)

    def _error(self, result, truth, name):
        error = (result.double() - truth).abs()
        return torch.where(self._finite(name), error, torch.zeros_like(error))

    def _limit(self, name: str) -> float:
        truth, dtype = self.truth[name], self.eager[0][name].dtype
        of_eager = max(float(self._error(e[name], truth, name).max()) for e in self.eager)
        size = torch.where(self._finite(name), truth, 0.0).abs().max()
        return 2 * of_eager + float(ulp(size, dtype)) + self.floors.get(name, 0.0)

    def check(self, results: Results) -> None:
        if results.keys() != self.truth.keys():
            raise Rejected(f"{self.what}: results {list(results)}, expected {list(self.truth)}")
        for name, ours in results.items():
            eager, truth = self.eager[0][name], self.truth[name]
            found, expected = (ours.shape, ours.dtype), (eager.shape, eager.dtype)
            if found != expected:
                raise Rejected(f"{self.what}: {name}: expected {expected}, got {found}")
            if truth.numel() == 0:
                continue
            self._check_non_finite(name, ours, eager, truth)
            error, limit = self._error(ours, truth, name), self._limit(name)
            if not bool((error <= limit).all()):
                worst = int(error.nan_to_num(nan=torch.inf).flatten().argmax())
                values = [t.flatten()[worst].item() for t in (ours, eager, truth)]
                raise Rejected(
                    f"{self.what}: {name}: error above the limit in element {worst} of "
                    f"{tuple(truth.shape)}: ours {values[0]!r}, eager {values[1]!r}, truth "
                    f"{values[2]!r}, limit {limit!r}"
                )

    def _check_non_finite(self, name, ours, eager, truth) -> None:
        near = truth.isfinite() & (truth.abs() > NEAR_OVERFLOW * torch.finfo(ours.dtype).max)
        kinds = [find_kinds(each) for each in (ours, eager, truth.to(ours.dtype))]
        differs = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2]) & ~near
        for mark in (torch.isnan, torch.isposinf, torch.isneginf):
            wrong = differs & (mark(ours) != mark(eager))
            if wrong.any():
                worst = int(wrong.flatten().nonzero()[0])
                raise Rejected(
                    f"{self.what}: {name}: {mark.__name__} is not where eager has it, in element "
                    f"{worst} of {tuple(truth.shape)}: ours {ours.flatten()[worst].item()!r}, "
                    f"eager {eager.flatten()[worst].item()!r}"
                )


def bound_sums(magnitude: torch.Tensor, count: int, product: float) -> torch.Tensor:
    """What sums of `count` terms may lose. magnitude: the sums of their magnitudes; product: the
    relative error of a term."""
    return (product + accumulate_roundoff(count + 2, ROUNDOFF_TENSOR_CORE_SUM)) * magnitude


def explain_sums(judge: PairJudge, results: Results, bounds: dict[str, torch.Tensor]) -> str | None:
    """What results that are above twice eager's error stem from, where all of those are within
    their a-priori bounds, by name."""
    for name, found in judge.find_errors(results).items():
        if found.ours <= found.limit:
            continue
        if name not in bounds:
            return None
        lost = (results[name].double() - judge.truth[name]).abs()
        if not bool((lost <= bounds[name] + ulp(judge.truth[name], results[name].dtype)).all()):
            return None
    return "digits of a product, or the order of a sum"
