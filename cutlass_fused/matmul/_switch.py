"""The switch: a call, a context, an environment variable."""

import contextlib
import inspect
import os
from collections.abc import Callable
from typing import Literal, TypeVar

from . import _state
from ._compile import mark_cache_keys
from ._install import install
from ._nested import Entry, Nested, outside_of_compiled

_VARIABLE = "CUTLASS_FUSED_FP32_MATMUL"


Word = Literal["ieee", "tf32", "off"]
Function = TypeVar("Function", bound=Callable)


def set_fp32_matmul(word: Word | None) -> None:
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

    def __init__(self, word: Word | None) -> None:
        self._word = _check(word)
        self._entries: list[Entry] = []

    def __enter__(self) -> "fp32_matmul":
        _enter(self._entries, self._word)
        return self

    def __exit__(self, *exception: object) -> None:
        _leave(self._entries)

    def __call__(self, function: Function) -> Function:
        kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction)
        if any(is_kind(function) for is_kind in (*kinds, inspect.isasyncgenfunction)):
            raise TypeError(
                "fp32_matmul: it decorates functions that compute when they are called, got a "
                f"generator or a coroutine, {function!r}: write `with` inside of it"
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


def _apply(word: str | None) -> None:
    if word is not None:
        install()
    _state.set_word(word)
    mark_cache_keys(word)


_words = Nested("fp32_matmul", _apply)
_decorate = outside_of_compiled("cutlass_fused.fp32_matmul")
_set, _enter, _leave = map(_decorate, (_words.set, _words.enter, _words.leave))


def _check(word: str | None) -> str | None:
    # What is no str may be an array, which compares by element.
    is_word = isinstance(word, str)
    if word is None or (is_word and word == "off"):
        return None
    if not is_word or word not in _state.WORDS:
        raise ValueError(f"fp32_matmul: word must be 'ieee', 'tf32', 'off' or None, got {word!r}")
    return word
