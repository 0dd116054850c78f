"""Checks and times one problem: plain, through torch.compile, and behind `fuse`."""

import copy
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import cutlass_fused
from cutlass_fused import comparison
from cutlass_fused.fusing.report import Report
from cutlass_fused.timing import time_in_turns

from ...measure.timing import time_waiting
from .problems import SEED, Loaded, Problem, load

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# The benchmark's own: |found - expected| <= tolerance + tolerance * |expected|, in all trials.
TOLERANCES = {"fp32": 1e-4, "bf16": 1e-2}
TRIALS = 5
VARIANTS = "eager", "compile", "fuse"
ROUNDS_PER_WAITING_ROUND = 3


class Wrong(ValueError):
    """A result or a buffer is not what the plain model has."""


def measure(device: str, rounds: int, variants: Sequence[str], problem: Problem, word: str) -> dict:
    """The row of one problem. Raises Wrong."""
    torch.compiler.reset()
    loaded = load(problem, device, DTYPES[word])
    with torch.no_grad(), comparison.set_matmul_precision("ieee"):
        models = {name: _share(loaded.model) for name in variants}
        report = cutlass_fused.fuse(models["fuse"]) if "fuse" in models else None
        error = check(loaded, models["fuse"], TOLERANCES[word]) if report is not None else 0.0
        inputs = loaded.draw(SEED)
        runs = {name: _bind(name, model, inputs) for name, model in models.items()}
        for run in runs.values():
            run()
        timings = time_in_turns(runs, device, rounds)
        walls = time_waiting(runs, device, -(-rounds // ROUNDS_PER_WAITING_ROUND))
    row = {"problem": problem.name, "dtype": word, "rel_err": error}
    row["ms"] = {name: each.median for name, each in timings.items()}
    row["wall_ms"] = {name: each.median for name, each in walls.items()}
    return row | (describe(report) if report is not None else {})


def check(loaded: Loaded, fused: nn.Module, tolerance: float) -> float:
    """The largest relative L2 error over the trials, beside the plain model. Raises Wrong.

    Where 16 bits exceed the tolerance, as PyTorch itself does that rounds behind each op, ours may
    be at most twice as far from float64 as the plain model, and one ulp.
    """
    models, worst = [_share(loaded.model), fused], 0.0
    if loaded.dtype != torch.float32:
        models.append(copy.deepcopy(loaded.model).double())
    for trial in range(TRIALS):
        inputs, found = loaded.draw(SEED + trial), []
        for model in models:
            is_wide = len(found) == 2
            torch.manual_seed(SEED + trial)
            y = model(*(each.double() for each in inputs) if is_wide else inputs)
            found.append({"the result": y, **dict(model.named_buffers())})
        for name in found[0]:
            of_models = [each[name] for each in found]
            _compare(f"{name} of trial {trial}", *of_models, tolerance=tolerance)
        worst = max(worst, find_error(found[1]["the result"], found[0]["the result"]))
    return worst


def find_error(found: Tensor, expected: Tensor) -> float:
    """Relative to the norm of what was expected; where that is 0, the norm of what was found."""
    difference = (found.double() - expected.double()).norm().item()
    return difference / (expected.double().norm().item() or 1.0)


def describe(report: Report) -> dict:
    """`fused`: "whole" where nothing of the model but its sites computes, and what may follow them
    in one kernel."""
    sites = [
        {"names": _list_names(site), "by": site.call.function, "why": _find_why(site)}
        for site in report.sites
    ]
    left = [f"{each.where}: {each.why}" for each in report.left]
    is_whole = bool(sites) and not left and not any(site["why"] for site in sites)
    is_any = any(site["names"] for site in sites)
    fused = "whole" if is_whole else "in part" if is_any else "not"
    return {"fused": fused, "sites": sites, "left": left}


def _list_names(site) -> list[str]:
    """What the last call computed, without what PyTorch's ops did."""
    if site.last is None:
        return []
    if site.last.why is not None:
        return site.last.instead.list_names() if site.last.instead is not None else []
    return site.names + (site.tail.names if _runs_tail(site) else [])


def _runs_tail(site) -> bool:
    return site.tail is not None and site.tail.last is not None and site.tail.last.why is None


def _find_why(site) -> str:
    if site.last is None:
        return "it was not called"
    if site.last.why is not None:
        return f"PyTorch's: {site.last.why}"
    if site.tail is not None and not _runs_tail(site):
        return f"PyTorch's, behind the batch norm: {site.tail.last and site.tail.last.why}"
    return site.obstacle


def _compare(what: str, expected: Tensor, found: Tensor, truth=None, *, tolerance: float) -> None:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        must = f"{expected.dtype} {tuple(expected.shape)}"
        raise Wrong(f"{what} must be {must}, got {found.dtype} {tuple(found.shape)}")
    if torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
        return
    difference = (found - expected).abs().max().item()
    if truth is None:
        raise Wrong(f"{what} must be within {tolerance:g}, got {difference:.2e} at most")
    ours, eager = (find_error(each, truth) for each in (found, expected))
    if not ours <= 2 * eager + torch.finfo(expected.dtype).eps:
        raise Wrong(f"{what} must be as near to float64 as {eager:.2e}, got {ours:.2e}")


def _share(model: nn.Module) -> nn.Module:
    """A copy with buffers of its own. Parameters are the same: some are of 4 GiB."""
    return copy.deepcopy(model, {id(each): each for each in model.parameters()})


def _bind(name: str, model: nn.Module, inputs: list) -> Callable[[], object]:
    if name == "compile":
        model = torch.compile(model, dynamic=False)
    return functools.partial(model, *inputs)
