"""autotune: the context, and what happens when it ends."""

import functools
import json
import threading
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

import torch

from .._namespace import ops
from . import _cache, _tuned
from ._fastest import Product, find_fastest

_lock = threading.Lock()
_open_contexts = 0
_timing = threading.Lock()


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@overload
def autotune(function: None = None, /) -> "_Autotune": ...
@overload
def autotune(
    function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result: ...
def autotune(function=None, /, *args, **kwargs):
    """Time the kernels that could serve each product that is met, and use the fastest from then on.

    As a context, `with cutlass_fused.autotune(): model(x)`, as a decorator,
    `@cutlass_fused.autotune()`, which opens a context for each call, or as a call,
    `y = cutlass_fused.autotune(model, x)`, which runs the model once and returns its result. A
    product is the matrix multiplication in any of the ops that have one, in the forward or the
    backward pass, also in a compiled model; it is told from others by the element type, precision,
    type of the result, M, N and K.

    The calls run as always. When the context ends, each product that was met in it and is not known
    yet is timed, on random operands of its own: nothing of the model is run again or changed. Its
    candidates, some dozens of kernels and the product by cuBLAS (in fp32, of fp32 inputs under
    "tf32" in TF32) with the epilogue behind it, run in turn with a cold L2 cache, a few hundred
    runs in all. That needs memory for the operands, a result in fp32, and 256 MiB; for fp32
    products far more, as kernels that cut K take several times the result. The fastest is
    taken if it beats what would have been chosen without timing by more than the noise. All of them
    keep the accuracy that the ops promise, but not the same bits: another tile may add in another
    order.

    What was found is used by this process at once, and kept for the next one in a file for each
    name of a GPU and version of the library: in the folder CUTLASS_FUSED_CACHE_DIR, else in
    cutlass_fused in XDG_CACHE_HOME or ~/.cache. The first context of a process reads it, so that
    nothing is timed twice; where nothing is to be timed, cutlass_fused.load_tuned_tiles() reads it.
    A file that is damaged or of another build is ignored with a RuntimeWarning, one that cannot be
    written gives one.

    Nothing is timed
    - of a call that is captured into a CUDA graph, or that torch.compile, torch.export or another
      tracer only looks at;
    - where the context ends within a capture, a tracer, a transform of torch.func or a
      TorchDispatchMode, or by an exception;
    - without a GPU or without the library;
    - where there is nothing to choose: rows of x or weight that are not whole 16 bytes, unless they
      are copied (fp16 and bf16 on a GPU of compute capability 9.0), or a tile that is forced;
    - where the operands do not fit into the GPU's memory, with a RuntimeWarning.

    Any thread may open contexts, one within another too: the first one to end times what all
    threads have met. Other threads may call the ops meanwhile, but must not capture a CUDA graph.

    Args:
        function: what to call, with `args` and `kwargs`; None for a context.

    Returns:
        What the function returns, or the context, which decorates functions too.
    """
    if function is None:
        return _Autotune()
    with _Autotune():
        return function(*args, **kwargs)


class _Autotune:
    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def tuned(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            return autotune(function, *args, **kwargs)

        return tuned

    def __enter__(self) -> "_Autotune":
        # While compiling nothing but this is traced.
        self._records = not torch.compiler.is_compiling() and _tuned.can_tune()
        if self._records:
            _tuned.load_once()
            _open()
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self._records:
            wanted = kind is None and _can_time()
            products = _close(wanted)
            if wanted:
                _tune(products)


def is_open() -> bool:
    """Whether a context writes down products, in any thread."""
    return _open_contexts > 0


def _open() -> None:
    global _open_contexts
    with _lock:
        _open_contexts += 1
        if _open_contexts == 1:
            ops.record_products(True)


def _close(wanted: bool) -> list[Product]:
    """What was met, if that is wanted; else it is left to the other contexts, if any are open."""
    global _open_contexts
    with _lock:
        _open_contexts -= 1
        if _open_contexts > 0 and not wanted:
            return []
        met = ops.record_products(_open_contexts > 0)
    return [Product(**product) for product in json.loads(met)]


def _can_time() -> bool:
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch.cuda.is_current_stream_capturing()
    )


def _tune(products: list[Product]) -> None:
    with _timing:
        found: dict[str, dict[str, str]] = {}
        try:
            for product in products:
                gpu = torch.cuda.get_device_name(product.device)
                if not _tuned.is_tuned(gpu, product.key):
                    _tune_one(gpu, product, found.setdefault(gpu, {}))
        finally:
            for gpu, tiles in found.items():
                if tiles:
                    _cache.add_tiles(gpu, tiles)


def _tune_one(gpu: str, product: Product, found: dict[str, str]) -> None:
    try:
        tile = find_fastest(product)
    except torch.cuda.OutOfMemoryError as error:
        return warnings.warn(
            f"cutlass_fused: {product.key} is not tuned: {error}", RuntimeWarning, stacklevel=5
        )
    _tuned.use(gpu, product.key, tile)
    found[product.key] = tile
