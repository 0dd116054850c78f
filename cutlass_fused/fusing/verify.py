"""Copies of a model, called with given inputs: how far each site is from float64."""

import contextlib
import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from .forward import FusedForward
from .report import Error
from .sites import Site
from .tails import Tail


def verify_fused(model: nn.Module, precision: str | None, inputs) -> dict[str, Error]:
    """The errors of the sites that a call with these inputs reaches.

    Raises TypeError for other inputs, RuntimeError where a site is too far from float64. The model
    itself is not called.
    """
    from .install import install_fused

    args, kwargs = read_inputs(inputs)
    errors: dict[str, Error] = {}
    given: dict[int, list] = {}

    def compare(site: Site, tensors: tuple, y: Tensor) -> None:
        errors[site.where] = _compare(site, given.pop(id(site)), y)

    def keep(site: Site, tensors: tuple) -> None:
        # As they are before the call, which may move statistics.
        weight, bias, _, operands = site.take(tensors[0], tensors[1:])
        taken = (tensors[0], weight, bias, *operands)
        given[id(site)] = [None if each is None else each.detach().clone() for each in taken]

    devices = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices):  # a model may draw numbers where it is copied
        twin = copy.deepcopy(model)
        forwards = install_fused(twin, precision)
        with torch.no_grad(), watch(forwards, compare, keep):
            twin(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    return errors


def read_inputs(inputs) -> tuple[tuple, dict]:
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, dict):
        return (), inputs
    raise TypeError(
        f"fuse: verify must be a tensor, a tuple or a dict of inputs, got {type(inputs).__name__}"
    )


@contextlib.contextmanager
def watch(
    forwards: Iterable[FusedForward],
    behind: Callable[[Site, tuple, Tensor], object],
    before: Callable[[Site, tuple], object] = lambda *_: None,
):
    """Calls before(site, given) and behind(site, given, y) around each call of a site, or of a
    Tail, that can be fused. `given` begins with x."""
    changed = []
    try:
        for plan in (plan for forward in forwards for plan in forward.plans):
            held = plan.run.__globals__
            for name, value in list(held.items()):
                if isinstance(value, (Site, Tail)):
                    changed.append((held, name, value))
                    held[name] = _make_watcher(value, behind, before)
        yield
    finally:
        for held, name, value in changed:
            held[name] = value


def _make_watcher(site: Site, behind: Callable, before: Callable) -> Callable:
    def call(*given):
        if site.take(given[0], given[1:]) is None:
            return site(*given)
        before(site, given)
        y = site(*given)
        behind(site, given, y)
        return y

    return call


def _compare(site: Site, tensors: list, y: Tensor) -> Error:
    wide = [None if each is None else each.double() for each in tensors]
    truth = site.functions.compose(*wide)
    eager = site.functions.compose(*tensors)
    if truth.numel() == 0:
        return Error(0.0, 0.0)
    size = torch.where(truth.isfinite(), truth, 0.0)
    count = max(size.norm().item(), torch.finfo(torch.float64).tiny)
    away = [_subtract(each.double(), truth) for each in (y, eager)]
    worst, of_eager = (each.abs().max().item() for each in away)
    ulp = torch.finfo(y.dtype).eps * size.abs().max().item()
    if y.dtype == torch.float64:  # of which the truth is rounded as often
        ulp *= max(tensors[0].shape)
    if not worst <= 2 * of_eager + ulp:
        raise RuntimeError(
            f"fuse: {site.where} must be within twice PyTorch's error and one ulp of float64, "
            f"{2 * of_eager + ulp:.3e}, got {worst:.3e}"
        )
    return Error(*(each.norm().item() / count for each in away))


def _subtract(y: Tensor, truth: Tensor) -> Tensor:
    """y - truth, which is 0 where both are NaN, or the same infinity."""
    is_same = (y == truth) | (y.isnan() & truth.isnan())
    return torch.where(is_same, 0.0, y - truth)
