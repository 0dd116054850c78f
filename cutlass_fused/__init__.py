"""Linear layers with what follows them (scale, LeakyReLU, batch norm, softmax), as single calls.

``cutlass_fused.nn`` holds drop-in modules, ``cutlass_fused.functional`` the functions under them,
``torch.ops.cutlass_fused`` the raw ops. On a GPU the ops run kernels built from CUTLASS templates;
on the CPU they run the definitions in ``cutlass_fused.reference``. Importing needs neither a GPU
nor a built library: ``cutlass_fused.show_config()`` tells what was found. On a GPU
``cutlass_fused.autotune`` finds the fastest kernels for the products of a model by timing them.
``cutlass_fused.fp32_matmul`` has PyTorch's own fp32 products computed by these kernels.
``cutlass_fused.epilogue`` makes a Python function part of a product. ``cutlass_fused.fuse`` finds
such chains in a model as it is.
``torch.compile(model, backend="cutlass_fused")`` has Inductor do so with what it finds in a model.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

from . import _old_names, functional, graphs, nn
from .config import show_config
from .fusing import fuse, unfuse
from .graphs.epilogues import inductor_options
from .matmul import fp32_matmul, matmul_report, set_fp32_matmul
from .precision import find_engine
from .tuning import autotune, load_tuned_tiles
from .weights.accumulated import accumulate_gradient
from .weights.prepared import prepare
from .weights.splits import invalidate, keep_splits

if TYPE_CHECKING:
    from .programs.epilogue import epilogue

__all__ = [
    "__version__",
    "accumulate_gradient",
    "autotune",
    "epilogue",
    "find_engine",
    "fp32_matmul",
    "functional",
    "fuse",
    "inductor_options",
    "invalidate",
    "keep_splits",
    "load_tuned_tiles",
    "matmul_report",
    "nn",
    "prepare",
    "set_fp32_matmul",
    "show_config",
    "unfuse",
]


graphs.register_when_imported()
_old_names.keep_old_names(__name__)


def __getattr__(name: str):
    """epilogue, when it is asked for: it imports TorchDynamo, which takes as long as torch does."""
    if name != "epilogue":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .programs.epilogue import epilogue

    globals()[name] = epilogue
    return epilogue


def __dir__() -> list[str]:
    return list(__all__)
