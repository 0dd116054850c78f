"""The graphs of one model, one for each shape that it is called with."""

import contextlib
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

from ...matmul import _state as switch
from ...precision import resolve_precision
from ...tuning._autotune import is_open as is_tuning
from .graph import CapturedCall, CudaGraph, is_within_capture
from .watched import Unfit, Watched

# Shapes that are remembered without a graph. A model of more shapes is met anew.
_MOST_SHAPES = 256
# A model that is another one so often, each time behind so few replays, is left alone.
_MOST_CHANGES, _FEW_REPLAYS = 8, 8
# Calls behind one that found the model unfit, which do not look again.
_PAUSE = 16
_NEVER = object()
_CONSTANTS = (type(None), bool, int, float, str)
_PLAIN = (Tensor, nn.Parameter)
# By one name each: every call asks.
_is_grad_enabled = torch.is_grad_enabled
_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_count_modes = torch._C._len_torch_dispatch_stack
_count_functions = torch._C._len_torch_function_stack
_is_capturing = torch.cuda.is_current_stream_capturing
_HOOKS = (torch_module._global_forward_pre_hooks, torch_module._global_forward_hooks)


class Replays:
    """replays(args, kwargs) is run(*args, **kwargs), by a graph where there can be one. Any thread
    may call.

    most: graphs that are kept. why: what spoke against a replay in the last call; None: it was one.
    replayed, called: how many calls were replays, and how many were not.
    """

    def __init__(self, model: nn.Module, run: Callable, most: int) -> None:
        self.most, self.why = most, None
        self.replayed = self.called = 0
        self.graphs: dict[tuple, CapturedCall] = {}
        self._model, self._run = model, run
        # What speaks against a graph of these shapes; None: they were met once, and may have one.
        self._met: dict[tuple, str | None] = {}
        self._watched: Watched | None = None
        self._pool = self._stream = None
        self._changes = self._since = self._pause = 0
        # Re-entrant: a forward may call the model.
        self._lock = threading.RLock()
        self._is_busy = False

    def __call__(self, args, kwargs):
        try:
            if is_within_capture():
                raise Unfit("the call is part of a larger one that is captured")
            if is_tuning():
                self.forget()  # of other tiles than those that are found now
                raise Unfit("cutlass_fused.autotune writes down its products")
            check_surroundings()
            key, device = find_key(args, kwargs)
            if device.type == "cuda" and _is_capturing():
                raise Unfit("the call is captured by its caller")
            with self._lock:
                captured = self._find(key, device, args, kwargs)
                if captured is None:
                    return self._meet(key, args, kwargs)
                self._follow(device)
                self.why, self.replayed, self._since = None, self.replayed + 1, self._since + 1
                return captured(args, kwargs)
        except Unfit as obstacle:
            why = str(obstacle)
        return self._call_plain(why, args, kwargs)

    def forget(self) -> None:
        """Frees the graphs and their memory."""
        with self._lock:
            self.graphs.clear()
            self._met.clear()
            if self._watched is not None:
                self._watched.close()
            self._watched = self._pool = self._stream = None

    def _call_plain(self, why: str, args, kwargs):
        self.why, self.called = why, self.called + 1
        return self._run(*args, **kwargs)

    def _find(self, key, device: torch.device, args, kwargs) -> CapturedCall | None:
        """The graph of these shapes, captured now if they were met before; None: they are new.
        Raises Unfit where they have none."""
        if self._is_busy:
            raise Unfit("it is called within its own forward")
        self._watch(device)
        captured = self.graphs.get(key)
        if captured is not None:
            return captured
        obstacle = self._met.get(key, _NEVER)
        if obstacle is not None and obstacle is not _NEVER:
            raise Unfit(obstacle)
        if len(self.graphs) >= self.most:
            raise Unfit(f"there are {self.most} graphs of other shapes")
        return None if obstacle is _NEVER else self._capture(key, device, args, kwargs)

    def _watch(self, device: torch.device) -> None:
        if self._watched is not None and not self._watched.is_current():
            self._count_change()
            self.forget()
        if self._changes > _MOST_CHANGES:
            raise Unfit("its attributes or tensors are others from call to call")
        if self._watched is None:
            if self._pause > 0:  # to look through a model takes long
                self._pause -= 1
                raise Unfit(self._obstacle)
            try:
                self._watched = Watched(self._model, device)
            except Unfit as obstacle:
                self._pause, self._obstacle = _PAUSE, str(obstacle)
                raise
        if self._watched.device != device:
            raise Unfit(f"x is on {device}, the model on {self._watched.device}")

    def _count_change(self) -> None:
        self._changes = self._changes + 1 if self._since < _FEW_REPLAYS else 0
        self._since = 0

    def _meet(self, key, args, kwargs):
        """The first call of these shapes chooses kernels, and shows what a replay would miss."""
        watched = self._watched
        versions = watched.read_versions()
        with self._be_busy():
            y = self._call_plain("these shapes were met for the first time", args, kwargs)
        if not watched.is_current():
            self._count_change()
            self.forget()
            return y
        is_written = watched.read_versions() != versions
        if len(self._met) >= _MOST_SHAPES:
            self._met.clear()
        self._met[key] = "its forward writes to a parameter or a buffer" if is_written else None
        return y

    def _capture(self, key, device: torch.device, args, kwargs) -> CapturedCall:
        if self._pool is None:
            self._pool = CudaGraph.make_pool()
        try:
            # Memory that every mode may write to.
            with self._be_busy(), torch.inference_mode(False), torch.no_grad():
                graph = CudaGraph(device, self._pool)
                captured = CapturedCall(self._run, args, kwargs, self._watched, graph)
        except Unfit as obstacle:
            self._met[key] = str(obstacle)
            self._pool = None  # the next graph has nothing to do with one that failed
            raise
        self.graphs[key] = captured
        return captured

    @contextlib.contextmanager
    def _be_busy(self):
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def _follow(self, device: torch.device) -> None:
        """Behind the replay before, which may be on another stream."""
        if device.type != "cuda":
            return
        raw = torch._C._cuda_getCurrentRawStream(device.index)
        if self._stream is None or raw != self._stream.cuda_stream:
            stream = torch.cuda.current_stream(device)
            if self._stream is not None:
                stream.wait_stream(self._stream)
                for captured in self.graphs.values():
                    captured.use_on(stream)
            self._stream = stream

    def __str__(self) -> str:
        count = len(self.graphs)
        text = f"CUDA graphs: {count} captured, {self.replayed} calls replayed, {self.called} not"
        return text if self.why is None else f"{text}: the last one since {self.why}"


def check_surroundings() -> None:
    """Raises Unfit where something wants to see each op, or the gradient of one."""
    if _is_grad_enabled():
        raise Unfit("gradients are enabled")
    if _is_any_autocast_enabled():
        raise Unfit("autocast is on")
    if _count_modes() or _count_functions() or forward_ad._current_level >= 0:
        raise Unfit("a mode of PyTorch or a derivative in forward mode sees its ops")
    if any(_HOOKS):
        raise Unfit("there are hooks of all modules")


def find_key(args, kwargs: dict) -> tuple[tuple, torch.device]:
    """What a graph depends on beside the model: shapes, strides and dtypes, other arguments, and
    the settings of fp32 products. And where the tensors are."""
    device, parts = None, [len(args), resolve_precision(None, "fuse"), switch.word]
    if kwargs:
        parts.append(tuple(kwargs))
    for each in (*args, *kwargs.values()):
        if type(each) in _PLAIN:
            if not is_on_gpu(each):
                raise Unfit(f"an input is on {each.device}")
            if not can_be_read(each):
                raise Unfit("an input is sparse, nested, empty or overlaps itself")
            if device is not None and each.device != device:
                raise Unfit("its inputs are on several devices")
            device = each.device
            parts += (each.shape, each.stride(), each.dtype)
        elif type(each) in _CONSTANTS:
            parts += (type(each), repr(each))
        else:
            raise Unfit(f"an argument is a {type(each).__name__}")
    if device is None:
        raise Unfit("no argument is a tensor")
    return (*parts, device), device


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def can_be_read(x: Tensor) -> bool:
    """Whether a tensor of its shape and strides can take its place."""
    if x.layout is not torch.strided or x.is_nested:
        return False
    return x.numel() > 0 and 0 not in x.stride()
