"""Splits of weights that a module keeps for good: for graphs, and in place of the weights."""

import weakref
from typing import TypeVar

import torch
from torch import Tensor

from .. import nn
from .._library import ops
from ..nn._parts import is_plain
from ..precision import resolve_precision
from . import splits

_MODULES = tuple(kind for name in nn.__all__ if isinstance(kind := getattr(nn, name), type))

# The bits of a row's scale that say what it lost: RowScale in gemm/fp16x3/split_rows.hpp.
_LOSS = 0x007FFFFF


class PreparedSplit:
    """The split of a weight as it was. Copies and pickles of the module that holds it have none."""

    def __init__(self, weight: Tensor, precision: str, in_rows: bool = False) -> None:
        """`in_rows`: of a copy in rows. Some GPUs split a weight that lies otherwise as it lies."""
        split, matrix = ops.split_weight.default, weight.detach()
        matrix = matrix.contiguous() if in_rows else matrix
        self._kept = splits.KeptSplit(matrix, precision, split)
        self._kept.remember(weight)
        self._weight = weakref.ref(weight)
        self.split, self.precision = self._kept.split, precision
        self.device, self.stand_in = weight.device, None
        splits.prepared_splits.add(self)

    def find(
        self, weight: Tensor, bias: Tensor | None, precision: str | None
    ) -> tuple[Tensor, Tensor | None]:
        """The split, if it is of this weight, and what to hand to an op beside it. While compiling,
        whether the weight was written to since cannot be asked."""
        if weight.dtype != torch.float32 or weight.device != self.device:
            return weight, None
        precision = resolve_precision(precision, "prepare")
        compiling = torch.compiler.is_compiling()
        is_right = precision == self.precision and (compiling or self.is_of(weight))
        if self.stand_in is None:
            if not is_right:
                return weight, None
            if not compiling:
                self._kept.wait()
            return weight, self.split
        if bias is not None and bias.device == self.device:
            return weight, None  # all of the module went to the CPU
        if not is_right or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda"):
            raise RuntimeError(
                "prepare: a module whose weights were left on the CPU must be called without "
                f"gradients or autocast, with precision {self.precision!r} and with the weights "
                f"that it had, got {'gradients' if torch.is_grad_enabled() else precision!r}; "
                "module.cuda() brings them back"
            )
        if not compiling:
            self._kept.wait()
        return self.stand_in, self.split

    @property
    def state(self) -> tuple | None:
        """What the weight was; another object behind each change, None where it is forgotten."""
        return self._kept.state

    def is_of(self, weight: Tensor) -> bool:
        """Whether it is the split of this weight, as that is now."""
        return (
            self._weight() is weight
            and splits.can_be_kept(weight)
            and splits.describe(weight) == self._kept.state
        )

    def forget_if_among(self, ids: set[int] | None) -> None:
        """If the weight is one of those with these ids, or for None; not where the split has taken
        its place."""
        if self.stand_in is None and (ids is None or id(self._weight()) in ids):
            self._kept.state = None
            # What is compiled from now on cannot ask for the state, and is guarded by this.
            self.precision = None
            # A weight with weak references is refused by torch.utils.swap_tensors.
            self._weight = _nothing

    def find_for_no_weight(self, weight: Tensor) -> "PreparedSplit | None":
        """What can take the place of the weight: a split in rows, of which none lost a digit. Waits
        for the GPU."""
        is_in_rows = weight.is_contiguous()
        ours = self if is_in_rows else PreparedSplit(weight, self.precision, in_rows=True)
        return ours if ours._has_all_digits(weight) else None

    def _has_all_digits(self, weight: Tensor) -> bool:
        scales = self.split[-4 * weight.shape[0] :].view(torch.int32)
        return not (scales & _LOSS).any()

    def take_place(self, weight: Tensor) -> None:
        """Takes the place of a weight that is on the CPU now. What stands for it has its shape, one
        element and no number: the ops know by the strides that there is nothing to read."""
        self.stand_in = torch.full((), torch.nan, device=self.device).expand(weight.shape)
        self.device = weight.device
        self._kept.remember(weight)

    def __deepcopy__(self, memo):
        return None

    def __reduce__(self):
        return _nothing, ()


def _nothing() -> None:
    return None


Module = TypeVar("Module", bound=torch.nn.Module)


def prepare(module: Module, *, keep_weights: bool = True) -> Module:
    """Split the float32 weights of the modules of cutlass_fused.nn within `module`, for good: for
    calls without gradients. So too those of layers that `cutlass_fused.fuse` has fused.

    Unprepared, a graph that is exported or captured splits the weights in each run, and one of
    torch.compile all but large weights, whose splits are kept as outside of graphs. Prepared, it
    reads what was split here, also if the weights change: then call this again, and
    compile or capture anew. Outside of graphs a change is noticed, as `invalidate` tells, and the
    weight split in the call. State dicts, copies and pickles hold no split.

    A split takes as much memory on the GPU as its weight under "ieee", and half as much under
    "tf32". With keep_weights=False it takes the weight's place there: the weight itself moves to
    the CPU, where state dicts find it, and no other module may use it. Such a module runs without
    gradients and autocast only, and in the precision that it has now, until module.cuda() brings
    the weights back. What is computed in plain fp32 (cutlass_fused.precision tells what) then has
    22 or 11 digits of the weight. This waits for the GPU.

    Returns the module. Left as they are: weights that are not float32 or not on a GPU, those whose
    rows are so short that they are not split, and, with keep_weights=False, those of which a split
    loses more and those of layers that were fused. Raises TypeError where `module` is no
    torch.nn.Module.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"prepare: module must be a torch.nn.Module, got {type(module).__name__}")
    gemms = [
        (gemm, precision)
        for gemm, precision in _find_gemms(module, keep_weights)
        if gemm.weight.is_cuda and splits.can_be_kept(gemm.weight)
    ]
    splits.forget([gemm.weight for gemm, _ in gemms])  # whose splits take memory too
    done = []
    for gemm, precision in gemms:
        prepared = PreparedSplit(gemm.weight, resolve_precision(precision, "prepare"))
        if prepared.split.numel() > 0:
            gemm.__dict__["_prepared_split"] = prepared
            done.append((gemm, prepared))
    if not keep_weights:
        # Two modules may share a weight: only now, when all have split theirs.
        for gemm, alone in [(gemm, each.find_for_no_weight(gemm.weight)) for gemm, each in done]:
            if alone is not None:
                gemm.__dict__["_prepared_split"] = alone
                gemm.weight.data = gemm.weight.data.cpu()
                alone.take_place(gemm.weight)
    return module


def _find_gemms(module: torch.nn.Module, keep_weights: bool = True):
    """Each Linear of a module of cutlass_fused.nn, with its precision, of which that module reads a
    Parameter: not what took its place, or computes its weight. And those that `fuse` has fused,
    where weights are kept: PyTorch's ops may be called in place of a site, and need them."""
    if keep_weights:
        yield from _find_fused(module)
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.LinearActivation)):
            gemm, kind = part, nn.Linear if isinstance(part, nn.Linear) else nn.LinearActivation
        elif isinstance(part, _MODULES) and "gemm" in part._modules:
            gemm, kind = part.gemm, torch.nn.Linear
        else:
            continue
        if is_plain(gemm, kind) and "weight" in gemm._parameters:
            yield gemm, part.precision


def _find_fused(module: torch.nn.Module):
    from ..fusing.forward import FusedForward  # it imports what reads these splits

    found = set()
    for part in module.modules():
        forward = part.__dict__.get("forward")
        plans = forward.plans if isinstance(forward, FusedForward) else ()
        for site in (site for plan in plans for site in plan.sites):
            gemm = site.linear
            # A module has a plan for each of its modes.
            if gemm is not None and id(gemm) not in found and is_plain(gemm, torch.nn.Linear):
                found.add(id(gemm))
                yield gemm, site.precision
