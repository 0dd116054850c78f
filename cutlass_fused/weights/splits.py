"""Splits of float32 weights, kept from call to call.

On a GPU a product of float32 matrices multiplies fp16 numbers, into which both are split first. To
split a weight takes as long as to read and write it once, and as much memory as it has itself,
where K is a multiple of 64 ("ieee"), or half as much ("tf32"). Its split is therefore kept, and
that of its columns where gradients of x alone are asked for, as long as it is as it was: the same
tensor object with the same memory, shape and strides, not written to, and not trained. PyTorch
counts most of its writes (``Tensor._version``); for others see ``invalidate``.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch._C import _functorch
from torch.optim.optimizer import register_optimizer_step_post_hook

from .._library import ops
from ..sharding import is_gathered
from . import accumulated, trained
from .describe import describe, is_plain

_split_op = ops.split_weight.default


# The precision, and whether it is the split of the weight's columns, as the product reads that
# gives the gradient of x; else that of its rows.
_Kind = tuple[str, bool]


class KeptSplit:
    """A split, and what the weight was when it was made. `split(matrix, precision)` makes it."""

    __slots__ = ("event", "memory", "split", "state", "storage", "streams")

    def __init__(
        self, weight: Tensor, precision: str, split: Callable, of_columns: bool = False
    ) -> None:
        self.remember(weight)
        matrix = weight.t() if of_columns else weight
        self.split, self.streams, self.event = split(matrix, precision), set(), None
        self.memory = None  # of a cache: tells when that of the weight is gone
        if weight.is_cuda:
            stream = torch.cuda.current_stream(weight.device)
            self.streams.add(stream.cuda_stream)
            self.event = stream.record_event()

    def remember(self, weight: Tensor) -> None:
        self.state = describe(weight)
        # While this lives no other storage can have the address of the weight's.
        self.storage = torch.multiprocessing.reductions.StorageWeakRef(weight.untyped_storage())

    def wait(self) -> None:
        """On a stream that has not used the split: behind the kernel that made it. And its memory
        is given back behind what that stream does with it."""
        if self.event is None:
            return
        device = self.split.device
        if torch._C._cuda_getCurrentRawStream(device.index) in self.streams:
            return
        if torch.cuda.is_current_stream_capturing():
            return  # a capture begins behind all work
        stream = torch.cuda.current_stream(device)
        stream.wait_event(self.event)
        self.split.record_stream(stream)
        self.streams.add(stream.cuda_stream)


class SplitCache:
    """Splits by weight and kind. `split(matrix, precision)` makes one. Any thread may call."""

    def __init__(self, split: Callable) -> None:
        self._split = split
        self._kept: dict[int, tuple[weakref.ref, dict[_Kind, KeptSplit]]] = {}
        # Not needed to find one. Re-entrant: a weight may die while it is held.
        self._lock = threading.RLock()
        self._forgotten = 0
        self.enabled = True

    def __len__(self) -> int:
        return sum(len(kept) for _, kept in list(self._kept.values()))

    def find(self, weight: Tensor, precision: str, of_columns: bool = False) -> Tensor | None:
        """The split, made now unless it is there; None where none can be kept."""
        if not self.enabled:
            return None
        kind = precision, of_columns
        kept = self._find_kept(weight).get(kind)
        if kept is not None and kept.state == describe(weight):
            kept.wait()
        elif can_be_kept(weight):
            kept = self._keep(weight, kind)
        else:
            return None
        return kept.split

    def forget(self, weight: Tensor | None = None) -> None:
        """Forgets what is kept of this weight, or all."""
        self._forgotten += 1  # also what another thread is about to keep
        if not self._kept:
            return
        with self._lock:
            if weight is None:
                self._kept.clear()
            elif self._find_kept(weight):
                self._kept.pop(id(weight), None)

    def _find_kept(self, weight: Tensor) -> dict[_Kind, KeptSplit]:
        reference, kept = self._kept.get(id(weight), (None, {}))
        return kept if reference is not None and reference() is weight else {}

    def _keep(self, weight: Tensor, kind: _Kind) -> KeptSplit:
        forgotten = self._forgotten
        precision, of_columns = kind
        kept = KeptSplit(weight, precision, self._split, of_columns)
        with self._lock:
            if self._forgotten == forgotten and self.enabled:
                self._find_entry(weight)[kind] = kept
                kept.memory = self._watch_memory(weight, kind)
        return kept

    def _watch_memory(self, weight: Tensor, kind: _Kind) -> weakref.ref:
        """Forgets this kind when the weight's memory is gone: a weight that moved to the CPU, or to
        another dtype, is the same tensor object, and nobody may ask for its split any more."""
        key, entries = id(weight), self._kept

        def forget(reference):
            with self._lock:
                kept = entries[key][1].get(kind) if key in entries else None
                if kept is not None and kept.memory is reference:
                    del entries[key][1][kind]

        return weakref.ref(weight.untyped_storage(), forget)

    def _find_entry(self, weight: Tensor) -> dict[_Kind, KeptSplit]:
        key, entries = id(weight), self._kept
        if not self._find_kept(weight):

            def forget(reference):
                # Another tensor may have got the id meanwhile.
                with self._lock:
                    if key in entries and entries[key][0] is reference:
                        del entries[key]

            entries[key] = (weakref.ref(weight, forget), {})
        return entries[key][1]


def can_be_kept(weight: Tensor) -> bool:
    """Whether a split of it can be: not of a subclass, as a DTensor, nor within torch.func, nor of
    an inference tensor or one that FSDP gathers, which do not count their writes."""
    return (
        is_plain(weight)
        and weight.dtype == torch.float32
        and weight.dim() == 2
        and not _functorch.is_functorch_wrapped_tensor(weight)
        and _functorch.peek_interpreter_stack() is None
        and not weight.is_inference()
        and weight.stride() != (0, 0)  # to the ops a weight that is not there any more
        and not is_gathered(weight)
    )


def _is_recorded() -> bool:
    """Whether calls are written down, to be run later, or run on tensors that are none."""
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._len_torch_dispatch_stack() > 0
    )


_cache = SplitCache(_split_op)
_trained = trained.TrainedSplits()
_cache.enabled = os.environ.get("CUTLASS_FUSED_KEEP_SPLITS", "1") != "0"
# What prepare() left with modules.
prepared_splits = weakref.WeakSet()


def find_split(
    weight: Tensor, precision: str, given: Tensor | None = None, of_columns: bool = False
) -> Tensor | None:
    """What a product with this weight is to read instead: `given`, or what was or can be kept.
    `of_columns`: a product with weight.t(), by which gradients of x come.

    None leaves the split to the op: where a graph is traced or captured it belongs to the graph,
    since the weight may be another one when that runs. (Then an op of ``kept`` may ask again.)
    """
    if given is not None:
        return given
    if weight.dtype != torch.float32 or not weight.is_cuda or _is_recorded():
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    split = _cache.find(weight, precision, of_columns)
    return split if split is not None and split.numel() > 0 else None


def find_split_under_grad(weight: Tensor, precision: str) -> Tensor | None:
    """Finds a split where a gradient is asked for. Nothing is kept of a weight that is trained: the
    next step changes it, and not every optimizer counts that."""
    if not weight.requires_grad:
        return find_split(weight, precision)
    if not torch.compiler.is_compiling():
        accumulated.refuse_buffer(weight)
        forget_trained(weight)
    return None


def share(weight: Tensor, precision: str) -> tuple[bool, Tensor | None]:
    """Whether the split that a forward pass makes of a trained weight may live until its backward
    pass, which reads it too; and where it may stay for the next forward pass, and be from the one
    before. FSDP2 gives back the memory of what it gathered in between."""
    if not weight.is_cuda or weight.dtype != torch.float32 or not _cache.enabled:
        return False, None
    if is_gathered(weight):
        return False, None
    return True, _find_trained(weight, precision)


def _find_trained(weight: Tensor, precision: str) -> Tensor | None:
    # One that is computed from others is another one in each step; what a graph reads must stay.
    if weight.numel() < trained.LEAST or not weight.is_leaf or not can_be_kept(weight):
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    # A part of the forward pass that is computed again, to save memory.
    if torch._C._current_graph_task_id() != -1:
        return None
    stream = torch._C._cuda_getCurrentRawStream(weight.device.index)
    return _trained.find(weight, precision, stream)


def forget_trained(weight: Tensor) -> None:
    """What was kept of it before."""
    _cache.forget(weight)


@contextlib.contextmanager
def split_in_every_call():
    """Within, nothing that is kept is used, and nothing more is kept. What is there stays."""
    enabled, _cache.enabled = _cache.enabled, False
    try:
        yield
    finally:
        _cache.enabled = enabled


def keep_splits(enabled: bool) -> None:
    """Whether splits of float32 weights are kept from call to call; at first they are, unless the
    environment variable CUTLASS_FUSED_KEEP_SPLITS is 0.

    They take as much memory as the weights under "ieee", and half of it under "tf32"; and as much
    again where gradients of x are taken beside weights that are not trained. False gives back what
    is kept; every call then splits the weight anew. What prepare() made stays.

    Raises TypeError if `enabled` is no bool.
    """
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool, got {enabled!r}")
    _cache.enabled = enabled
    if not enabled:
        _cache.forget()
        _trained.forget()


def forget(weights: list[Tensor] | None) -> None:
    """What was kept or prepared of these, or of all."""
    _trained.end_step(weights)
    if weights is None:
        _cache.forget()
    else:
        for weight in weights:
            _cache.forget(weight)
    ids = None if weights is None else set(map(id, weights))
    for prepared in list(prepared_splits):
        prepared.forget_if_among(ids)


def invalidate(weights: "Tensor | torch.nn.Module | None" = None) -> None:
    """Forget what was kept of a weight, of all parameters of a module, or of everything, also what
    prepare() made of weights that are still on the GPU.

    To be called behind a write that PyTorch does not count: through ``.data``, a NumPy array or
    DLPack; to the storage; of torch.distributed (``broadcast``, ``all_reduce``, ``recv``); of a
    replayed CUDA graph; of another library. Steps of optimizers are noticed, as are
    ``load_state_dict`` and all in-place operations. And in front of
    ``torch.utils.swap_tensors``, which refuses a tensor that has weak references.

    Raises TypeError for anything else.
    """
    if isinstance(weights, torch.nn.Module):
        forget(list(weights.parameters()))
    elif weights is None:
        forget(None)
    elif isinstance(weights, Tensor):
        forget([weights])
    else:
        raise TypeError(
            f"invalidate: weights must be a tensor, a module or None, got {type(weights).__name__}"
        )


def _forget_stepped(optimizer: torch.optim.Optimizer, args, kwargs) -> None:
    """Fused optimizers do not count their writes."""
    if len(_cache) > 0 or len(prepared_splits) > 0 or _trained.is_called:
        forget([p for group in optimizer.param_groups for p in group["params"]])


register_optimizer_step_post_hook(_forget_stepped)
