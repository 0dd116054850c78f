"""The switch's kernels in C++ (src/switch/), a library that serves what is called often.

Each lies over a kernel of _install, to which it gives every call beside a report, and each that is
not as plain as src/switch/serve.hpp wants it. Without the library those kernels serve everything.

It is written against the C++ API of torch, which is another in each version. So it is loaded only
by the torch that it was compiled with.
"""

import atexit
import contextlib
import ctypes
import functools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import torch

from .. import _library
from . import _by_pytorch, _left, _state

_TAKES = ctypes.c_char_p, ctypes.c_char_p, ctypes.c_bool, ctypes.c_int64


class Kernels(NamedTuple):
    """The functions of the library, as src/switch/switch.cpp tells them."""

    set: Callable
    take: Callable
    put_over: Callable
    define_gradients: Callable


def library_path() -> pathlib.Path:
    """Beside the library of the ops."""
    return _library.library_path().with_name("libcutlass_fused_switch.so")


@functools.cache
def load() -> Kernels | str:
    """The library, or why there is none. It puts no kernel anywhere by being loaded."""
    path = library_path()
    if not path.is_file():
        return f"there is no file {path}"
    try:
        library = ctypes.CDLL(str(path))
        version = _find(library, "torch_version", ctypes.c_char_p)().decode()
        if version != running_version():
            return f"{path} was built for torch {version}"
        if function := _by_pytorch.find_function():
            address = ctypes.cast(function, ctypes.c_void_p)
            _find(library, "ask", None, ctypes.c_void_p)(address)
        return Kernels(
            _find(library, "set", None, ctypes.c_int, ctypes.c_bool),
            _find(library, "take", ctypes.c_void_p, *_TAKES),
            _find(library, "put_over", ctypes.c_bool, ctypes.c_void_p),
            _find(library, "define_gradients", ctypes.c_bool),
        )
    except (OSError, AttributeError) as error:
        return f"{path} cannot be loaded: {error}"


def running_version() -> str:
    """That of torch, without what its builds for one GPU or another differ in."""
    return torch.__version__.partition("+")[0]


def describe_kernels() -> str:
    """Which kernels a switch puts over those of PyTorch, and why, in words."""
    kernels = load()
    return f"kernels in Python: {kernels}" if isinstance(kernels, str) else "kernels in C++"


@contextlib.contextmanager
def put_over(name: str, key: str, serves: bool):
    """A kernel in C++ over the one in Python that is put there within, if there is a library.

    Without `serves` the one in Python only counts, and is called beside a report alone.
    """
    kernels = load()
    if isinstance(kernels, str):
        yield
        return
    # Between the two it is PyTorch's that is there: what the switch leaves goes to it directly.
    taken = kernels.take(name.encode(), key.encode(), serves, _left.SHORT_K)
    yield
    if taken is not None:
        kernels.put_over(taken)


@functools.cache
def follow() -> None:
    """Tell the library of the switch and the report from now on."""
    kernels = load()
    if isinstance(kernels, str):
        return

    def tell() -> None:
        number = 0 if _state.word is None else 1 + _state.WORDS.index(_state.word)
        kernels.set(number, _state.report is not None)

    _state.followers.append(tell)
    tell()
    # The kernels in Python, which it calls, end with Python.
    atexit.register(kernels.set, 0, False)


def _find(library: ctypes.CDLL, name: str, result, *arguments) -> Callable:
    function = getattr(library, f"cutlass_fused_switch_{name}")
    function.restype, function.argtypes = result, arguments
    return function
