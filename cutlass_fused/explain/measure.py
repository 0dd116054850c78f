"""The times of a model and of its sites on the GPU."""

import copy
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..fusing import fuse
from ..fusing.report import Report, Timing
from ..fusing.sites import Site
from ..fusing.verify import read_inputs, watch
from ..precision import resolve_precision
from ..timing import time_in_turns
from .roofline import Roofline, measure_roofline


def measure(model: nn.Module, inputs, precision: str | None, is_trained: bool, verify: bool) -> str:
    """The report, with a line for the whole model."""
    model, inputs = model.cuda(), _move(inputs)
    plain = copy.deepcopy(model)
    _tell("fusing")
    report = fuse(model, precision=precision, verify=inputs if verify else None)
    args, kwargs = read_inputs(inputs)
    run = {"ours": _make_step(model, args, kwargs, is_trained)}
    run["eager"] = _make_step(plain, args, kwargs, is_trained)
    _tell("linking and calling")
    for each in run.values():
        each()
    _tell("timing the model")
    times = time_in_turns(run, "cuda")
    _tell("timing products and copies, for the roofline")
    roofline = measure_roofline()
    calls = _record(model, report, args, kwargs)
    for count, (site, given) in enumerate(calls, 1):
        _tell(f"timing site {count} of {len(calls)}, {site.where}")
        report.timings[site.where] = _time_site(site, given, roofline)
    ours, eager = times["ours"].median, times["eager"].median
    what = "a forward and a backward pass" if is_trained else "a call"
    line = f"{what}: {ours:.4g} ms, PyTorch {eager:.4g} ms, {eager / ours:.3g} times as long"
    return f"{report}\n{line}\non one {torch.cuda.get_device_name()}, medians on cold caches"


def _tell(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def _move(value):
    if isinstance(value, Tensor):
        return value.cuda()
    if isinstance(value, (tuple, list)):
        return type(value)(map(_move, value))
    if isinstance(value, dict):
        return {name: _move(each) for name, each in value.items()}
    return value


def _make_step(model: nn.Module, args, kwargs, is_trained: bool) -> Callable[[], None]:
    def call():
        with torch.no_grad():
            model(*args, **kwargs)

    def step():
        model.zero_grad(set_to_none=True)
        _add_all(model(*args, **kwargs)).backward()

    return step if is_trained else call


def _add_all(value) -> Tensor:
    if isinstance(value, Tensor):
        return value.sum()
    values = value.values() if isinstance(value, dict) else value
    return sum(_add_all(each) for each in values)


def _record(model: nn.Module, report: Report, args, kwargs) -> list[tuple[Site, tuple]]:
    """What each site of a copy was given, once."""
    found: dict[str, tuple[Site, tuple]] = {}

    def keep(site, given: tuple, y: Tensor) -> None:
        if isinstance(site, Site):
            found.setdefault(site.where, (site, given))

    with watch(report.forwards, keep):
        with torch.no_grad():
            model(*args, **kwargs)
    return list(found.values())


def _time_site(site: Site, given: tuple, roofline: Roofline) -> Timing:
    given = tuple(each.detach() if isinstance(each, Tensor) else each for each in given)
    with torch.no_grad():
        y = site(*given)
        variants = {"ours": lambda: site(*given), "eager": lambda: site.plain(*given)}
        times = time_in_turns(variants, "cuda", rounds=15)
        kernel = _find_kernel(variants["ours"])
    weight, x = site.take(given[0], given[1:])[0], given[0]
    dtype = torch.promote_types(x.dtype, weight.dtype)
    word = resolve_precision(site.precision, "explain", dtype)
    tensors = [each for each in (*given, weight, y) if isinstance(each, Tensor)]
    size = sum(each.numel() * each.element_size() for each in tensors)
    least = roofline.find_ms(2.0 * x.numel() * weight.shape[0], size, dtype, word)
    return Timing(times["ours"].median, times["eager"].median, least / times["ours"].median, kernel)


def _find_kernel(run: Callable) -> str:
    """The name of that which takes longest."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
        torch.cuda.synchronize()
    kernels = profile.key_averages()
    longest = max(kernels, key=lambda each: each.self_device_time_total, default=None)
    return "–" if longest is None else _shorten(longest.key)


def _shorten(name: str, most: int = 60) -> str:
    name = name.removeprefix("void ").replace("cutlass_fused::", "").replace("cutlass::", "")
    return name if len(name) <= most else name[: most - 1] + "…"
