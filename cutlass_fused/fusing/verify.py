"""Copies of a model, called with given inputs: how far each site is from float64."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .report import Error
from .sites import Site


def verify_fused(model: nn.Module, precision: str | None, inputs) -> dict[str, Error]:
    """The errors of the sites that a call with these inputs reaches.

    Raises TypeError for other inputs, RuntimeError where a site is too far from float64. The model
    itself is not called.
    """
    from .install import install_fused

    args, kwargs = _read_inputs(inputs)
    twin = copy.deepcopy(model)
    watched: list[tuple[Site, tuple]] = []
    for forward in install_fused(twin, precision):
        for plan in forward.plans:
            _watch(plan.run, plan.sites, watched)
    devices = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        twin(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    errors: dict[str, Error] = {}
    for site, given in watched:
        if given is not None:
            errors[site.where] = _compare(site, *given)
    return errors


def _read_inputs(inputs) -> tuple[tuple, dict]:
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, dict):
        return (), inputs
    raise TypeError(
        f"fuse: verify must be a tensor, a tuple or a dict of inputs, got {type(inputs).__name__}"
    )


def _watch(run: Callable, sites: list[Site], watched: list) -> None:
    """Has the function of a plan call stand-ins, which keep what a site was given."""
    for name, value in list(run.__globals__.items()):
        if isinstance(value, Site) and value in sites:
            run.__globals__[name] = _make_watcher(value, watched)


def _make_watcher(site: Site, watched: list) -> Callable:
    def call(x, *given):
        taken = site.take(x, given)
        if taken is None:
            return site(x, *given)
        weight, bias, _, operands = taken
        tensors = (x, weight, bias, *operands)
        # As they are before the call, which may write to x, or move statistics.
        kept = [None if each is None else each.detach().clone() for each in tensors]
        y = site(x, *given)
        watched.append((site, (kept, y.detach().clone(), site.last)))
        return y

    return call


def _compare(site: Site, tensors: list, y: Tensor, decision) -> Error:
    wide = [None if each is None else each.double() for each in tensors]
    truth = site.functions.compose(*wide)
    eager = site.functions.compose(*tensors).double()
    ours, count = y.double(), max(truth.norm().item(), torch.finfo(torch.float64).tiny)
    errors = [((each - truth).norm().item()) / count for each in (ours, eager)]
    worst, of_eager = ((each - truth).abs().max().item() for each in (ours, eager))
    ulp = torch.finfo(y.dtype).eps * truth.abs().max().item()
    if not worst <= 2 * of_eager + ulp:
        raise RuntimeError(
            f"fuse: {site.where} must be within twice PyTorch's error and one ulp of float64, "
            f"{2 * of_eager + ulp:.3e}, got {worst:.3e}"
        )
    return Error(*errors)
