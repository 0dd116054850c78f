"""The switch: a call, a context, an environment variable."""

import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Callable

from . import _state
from ._compile import mark_cache_keys
from ._install import install

_VARIABLE = "CUTLASS_FUSED_FP32_MATMUL"


def set_fp32_matmul(word: str | None) -> None:
    """Compute PyTorch's own fp32 products on a GPU by kernels of this package, from now on.

    The products are those of `mm, addmm, bmm, baddbmm, _addmm_activation`, so that of
    `torch.nn.Linear`, `matmul`, `einsum` and attention too, in the forward and in every backward
    pass. Which of them are served: docs/fp32_matmul.md. The setting holds in all threads.

    Args:
        word: ``"ieee"``: no error larger than that of cuBLAS in fp32, also where PyTorch allows
            TF32. ``"tf32"``: that of TF32 at most, also where PyTorch does not allow it. None or
            ``"off"``: PyTorch's own products.

    The first call that turns it on puts kernels over PyTorch's, which stay: see _install.
    Make it before other threads compute.

    Raises ValueError for any other word. A product on a GPU raises RuntimeError where the library
    is not loaded or has no kernel for the GPU.
    """
    _set(_check(word))


class fp32_matmul(contextlib.ContextDecorator):
    """`with fp32_matmul("ieee"):` is `set_fp32_matmul("ieee")` and, at the end, what was before.

    It restores after an exception too, may be nested, entered again, and decorates functions. A
    `backward()` behind the `with` is outside of it. So is whatever another thread computes after
    the end; what it computes meanwhile is inside. Where several threads have one open, the one that
    was entered last holds, until it ends; behind the last of them is what was before the first.
    `set_fp32_matmul` within one holds until its end.

    Raises ValueError for a word that set_fp32_matmul does not take, TypeError where it decorates
    what runs behind the call: a generator or a coroutine.
    """

    def __init__(self, word: str | None):
        self._word = _check(word)
        self._entries: list[_Entry] = []

    def __enter__(self) -> "fp32_matmul":
        self._entries.append(_enter(self._word))
        return self

    def __exit__(self, *exception) -> None:
        if not self._entries:
            raise RuntimeError("fp32_matmul: it was not entered as often as it is left")
        _leave(self._entries.pop())

    def __call__(self, function: Callable) -> Callable:
        kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction)
        if any(is_kind(function) for is_kind in (*kinds, inspect.isasyncgenfunction)):
            raise TypeError(
                "fp32_matmul: it decorates functions that compute when they are called, got a "
                f"generator or a coroutine, {function.__qualname__}: write `with` inside of it"
            )
        return super().__call__(function)


def follow_environment() -> None:
    """Turn it on if CUTLASS_FUSED_FP32_MATMUL says so; for a word that it does not know, raise."""
    word = os.environ.get(_VARIABLE)
    if word:
        try:
            set_fp32_matmul(word)
        except ValueError as error:
            raise ValueError(f"{_VARIABLE}: {error}") from None


class _Entry:
    """A `with` that is open, and what it or `set_fp32_matmul` within it said last."""

    def __init__(self, word: str | None):
        self.word = word


_lock = threading.Lock()
_outside = _Entry(None)
_open: list[_Entry] = []  # in the order in which they were entered, of all threads


def _outside_of_compiled(function: Callable) -> Callable:
    """TorchDynamo would trace a write to a global and make it behind the graph, whose products are
    then computed under the old setting. This breaks the graph, as torch.compiler.disable does,
    which would import all of TorchDynamo here."""

    @functools.wraps(function)
    def run(argument):
        with _lock:
            result = function(argument)
            word = (_open[-1] if _open else _outside).word
            if word is not None:
                install()
            _state.set_word(word)
            mark_cache_keys(word)
        return result

    run._torchdynamo_disable = True
    run._torchdynamo_disable_msg = (
        "cutlass_fused.fp32_matmul must stand outside of what is compiled"
    )
    return run


@_outside_of_compiled
def _set(word: str | None) -> None:
    (_open[-1] if _open else _outside).word = word


@_outside_of_compiled
def _enter(word: str | None) -> _Entry:
    _open.append(_Entry(word))
    return _open[-1]


@_outside_of_compiled
def _leave(entry: _Entry) -> None:
    _open.remove(entry)


def _check(word: str | None) -> str | None:
    if word is None or word == "off":
        return None
    if word not in _state.WORDS:
        raise ValueError(f"fp32_matmul: word must be 'ieee', 'tf32', 'off' or None, got {word!r}")
    return word
