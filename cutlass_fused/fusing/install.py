"""fuse and unfuse."""

from torch import nn

from ..precision import Precision, check_precision
from .captured.forward import CapturedForward
from .copies import install_forward, remove_forward
from .forward import FusedForward
from .plan import NothingFound
from .recorded.products import find_reason
from .recorded.recording import Declined
from .report import Report
from .verify import verify_fused

# Graphs of `fuse(model, graphs=True)`.
_MOST_GRAPHS = 16


def fuse(
    model: nn.Module,
    *,
    precision: Precision | None = None,
    verify=None,
    graphs: bool | int = False,
) -> Report:
    """Have the linear layers of a model, and what follows each, computed in one call.

    y = chain(x @ weight.T + bias): found are `torch.nn.Linear`, `F.linear`, `addmm`, and `matmul`
    with what is added to it; behind it elements and rows in any order, as cutlass_fused.epilogue
    takes them, with numbers, parameters, and other tensors; activation modules; layer, RMS and
    group norm; `torch.nn.BatchNorm1d` in training and in eval; softmax. Dropout in training stays
    PyTorch's.

    The model is changed in place: modules get a forward of their own, and keep their Parameters,
    buffers, submodules and hooks, so that state dicts and optimizers see no change.
    `cutlass_fused.unfuse(model)` takes it back. A copy of the model is fused too. torch.compile,
    torch.jit.trace and transforms of torch.func see the model as it was.

    Every call decides by dtype, shape and device between the fused function and PyTorch's ops,
    which run where ours do not apply or are expected to take longer.

    Args:
        model: any module. What its forwards do is found by recording them, as torch.fx does,
            without a tensor. A module is left alone, with the reason in the report, where that
            cannot follow: control flow by tensors, `with` and `try`, attributes that are written,
            subclasses with a forward of their own, hooks and parametrizations of a Linear.
        precision: "ieee" or "tf32" of fp32 products; None follows PyTorch's setting, as in
            cutlass_fused.functional. A cutlass_fused.nn.Linear keeps its own.
        verify: the inputs of a call of the model: a tensor, a tuple, or a dict of arguments by
            name. A copy of the model is called with them. What each site is given is computed in
            float64 too, and the report has the site's error, beside that of PyTorch's ops.
        graphs: whether calls of the model on a GPU, in eval and without gradients, are captured
            into CUDA graphs and replayed: one for each shape that comes twice, 16 at most, or as
            many as this number says. y = model(x) is a copy of the graph's result. Replays see what
            is written to a parameter in place; behind any other change of the model it is captured
            anew. Other calls run as they would without; `report.graphs.why` says why the last one
            did. What the forward reads outside of the model is as it was at the capture.

    Returns:
        a Report. str(report) is a table of the sites and of what was left.

    Raises:
        TypeError: model is no torch.nn.Module, verify none of these, or graphs no bool or int.
        ValueError: unknown precision; graphs is negative.
        RuntimeError: with verify, a site is further from float64 than twice PyTorch's ops and one
            ulp. Whatever is raised, the model is as it was.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"fuse: model must be a torch.nn.Module, got {type(model).__name__}")
    check_precision(precision, "fuse")
    most = _read_graphs(graphs)
    report = Report(model)
    found = _find_forwards(model, precision, report)
    if most > 0:
        _capture_calls(model, precision, most, found, report)
    if verify is not None:
        report.errors = verify_fused(model, precision, verify)
    _install(model, found)
    return report


def unfuse(model: nn.Module) -> nn.Module:
    """Give all modules of a model the forward that they had before `fuse`; returns the model.

    Raises TypeError where model is no torch.nn.Module. A model that is not fused stays as it is.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"unfuse: model must be a torch.nn.Module, got {type(model).__name__}")
    for module in model.modules():
        remove_forward(module)
    return model


def install_fused(model: nn.Module, precision: Precision | None) -> list[FusedForward]:
    """Fuse a copy, for `verify`."""
    found = _find_forwards(model, precision, Report(model))
    _install(model, found)
    return [forward for _, forward in found]


def _read_graphs(graphs: bool | int) -> int:
    if isinstance(graphs, bool):
        return _MOST_GRAPHS if graphs else 0
    if not isinstance(graphs, int):
        raise TypeError(f"fuse: graphs must be a bool or an int, got {type(graphs).__name__}")
    if graphs < 0:
        raise ValueError(f"fuse: graphs must be 0 or more, got {graphs}")
    return graphs


def _capture_calls(model, precision, most: int, found: list, report: Report) -> None:
    """In place of the forward that was found of the model itself, if there is one."""
    if not isinstance(model.__dict__.get("forward"), (FusedForward, type(None))):
        report.leave("", type(model).__name__, "no graphs: the instance has a forward of its own")
        return
    captured = CapturedForward(model, "", precision, most)
    for index, (module, forward) in enumerate(found):
        if module is model:
            found[index] = model, captured
            captured.prepare()
            report.forwards[report.forwards.index(forward)] = captured
            break
    else:
        found.append((model, captured))
    report.graphs = captured.replays


def _find_forwards(model: nn.Module, precision: Precision | None, report: Report):
    """Changes nothing."""
    found, covered = [], set()
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) or id(module) in covered or not _may_hold(module):
            continue
        if not isinstance(module.__dict__.get("forward"), (FusedForward, type(None))):
            if _holds_matrices(module):
                why = "the instance has a forward of its own"
                report.leave(path, type(module).__name__, why)
            continue
        forward = FusedForward(module, path, precision)
        try:
            plan = forward.prepare()
        except NothingFound as error:
            report.leave_all(error.left)
            continue
        except Declined as error:
            if _holds_matrices(module):
                report.leave(path, type(module).__name__, str(error))
            continue
        found.append((module, forward))
        report.add(forward, plan)
        covered |= _list_covered(module, plan)
    for path, module in model.named_modules():
        if type(module) is nn.Linear and id(module) not in covered:
            _take_alone(module, path, precision, report, found)
    return found


def _take_alone(linear: nn.Linear, path: str, precision, report: Report, found: list) -> None:
    """A Linear whose caller is not recorded."""
    if (reason := find_reason(linear)) is not None:
        report.leave(path, "Linear", reason)
        return
    forward = FusedForward(linear, path, precision)
    try:
        plan = forward.prepare()
    except Declined as error:
        report.leave(path, "Linear", str(error))
        return
    found.append((linear, forward))
    report.add(forward, plan)


def _may_hold(module: nn.Module) -> bool:
    """Whether its forward may be one with a product: not a container of PyTorch's that has none,
    nor a leaf of PyTorch's."""
    kind = type(module)
    if kind in (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict):
        return False
    is_torchs = kind.__module__.startswith("torch.nn.modules.")
    return kind is nn.Sequential or not is_torchs or bool(module._modules)


def _holds_matrices(module: nn.Module) -> bool:
    """Whether somebody could expect a site there."""
    if type(module).__module__.startswith("torch.nn.utils."):
        return False  # a parametrization
    children = [each for each in module.children() if isinstance(each, nn.Linear)]
    return bool(children) or any(
        p is not None and p.dim() == 2 for p in module._parameters.values()
    )


def _list_covered(module: nn.Module, plan) -> set[int]:
    """Modules whose calls the plan contains: Linears in its sites, Sequentials that it goes
    through."""
    covered = {id(site.linear) for site in plan.sites if site.linear is not None}
    return covered | plan.inlined


def _install(model: nn.Module, found) -> None:
    """All or nothing."""
    earlier = {
        module: module.__dict__["forward"]
        for module in model.modules()
        if isinstance(module.__dict__.get("forward"), FusedForward)
    }
    try:
        unfuse(model)
        for module, forward in found:
            install_forward(module, forward)
    except BaseException:
        unfuse(model)
        for module, forward in earlier.items():
            install_forward(module, forward)
        raise
