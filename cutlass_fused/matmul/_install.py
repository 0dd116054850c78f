"""The kernels at a dispatch key of PyTorch: put there once, over those that it had.

They stay until the process ends, and call what PyTorch had while the switch is off. To take them
away again would not be safe: the dispatcher reads its table without a lock, also in threads that
hold no GIL, and a thread that computes meanwhile gets half of an entry (torch 2.11 then raises an
internal error). For the same reason the first switch belongs before other threads compute.

Each is in Python, and has one in C++ over it where _native finds a library.
"""

import threading
import warnings
from collections.abc import Callable

import torch
from torch._C._dynamo.eval_frame import (
    _FrameAction,
    _FrameExecStrategy,
    set_code_exec_strategy,
)

from . import _left, _native, _state
from ._served import SERVED

_FLOAT32 = torch.float32
_lock = threading.Lock()
# Registrations live as long as these. By key and by what was put there.
_libraries: dict[tuple[str, str], torch.library.Library] = {}


def install(key: str = "CUDA") -> None:
    """Put the kernels of all ops of _served there, if they are not yet. Tests use the key CPU."""
    put_over("served", key, {name: _maker(serve) for name, serve in SERVED.items()})


def put_over(what: str, key: str, makers: dict[str, Callable]) -> None:
    """Put makers[name](name, original) over the kernel `original` of each op that has one."""
    with _lock:
        if (what, key) in _libraries:
            return
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            # PyTorch warns of what is meant here.
            warnings.filterwarnings("ignore", "Warning only once for all operators")
            for name, make in makers.items():
                original = _find_kernel(name, key)
                if original is not None:
                    kernel = make(name, original)
                    if key == "CPU":
                        kernel = _keep_out(kernel, original)
                    _leave_untraced(kernel)
                    with _native.put_over(name, key, name in SERVED):
                        library.impl(name, kernel, key, with_keyset=True, allow_override=True)
        _libraries[what, key] = library
        _native.follow()


def _find_kernel(name: str, key: str) -> Callable | None:
    """What PyTorch, or whoever put something over it before, has for an op."""
    try:
        return torch.library.get_kernel(f"aten::{name}", key).call_boxed
    except RuntimeError:  # none: another version of PyTorch, or an op of another device
        return None


def _maker(serve: Callable) -> Callable:
    def make(name: str, original: Callable) -> Callable:
        def kernel(keyset, first, *args, **options):
            # Each name is read once: another thread may change it meanwhile.
            word, report = _state.word, _state.report
            if word is not None and first.dtype is _FLOAT32:
                y = serve(word, first, *args, **options)
                if report is not None:
                    report.count(name, (first, *args), y)
                if y.__class__ is not str:
                    return y
            elif report is not None:
                reason = _left.OFF if word is None else _left.OTHER_DTYPE
                report.count(name, (first, *args), reason)
            return original(keyset, first, *args, **options)

        return kernel

    return make


def _leave_untraced(kernel: Callable) -> None:
    """A compiled function runs the calls behind a break of its graph with TorchDynamo on, and that
    would trace this kernel as if the program had it. torch.compiler.disable does the same in a
    frame more for each call, and loads TorchDynamo."""
    nothing = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    set_code_exec_strategy(kernel.__code__, nothing)


def _keep_out(kernel: Callable, original: Callable) -> Callable:
    """`kernel`, but `original` within it: the ops of this package call PyTorch on the CPU."""

    def outer(keyset, *args, **options):
        if getattr(_inside, "yes", False):
            return original(keyset, *args, **options)
        _inside.yes = True
        try:
            return kernel(keyset, *args, **options)
        finally:
            _inside.yes = False

    return outer


_inside = threading.local()
