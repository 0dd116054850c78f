"""python -m cutlass_fused.demo: the three models, their errors and times, beside PyTorch's own.

The benches time the same models, in the same precisions: those of ``cutlass_fused.comparison``,
whose names stay importable from here, too.
"""

from .._old_names import keep_old_names
from ..comparison import (
    MODELS,
    PRECISIONS,
    Model,
    Precision,
    Truth,
    choose_device,
    compute_error,
    compute_truth,
    find_obstacle,
    keep_seed,
    set_matmul_precision,
    share_product,
)

__all__ = [
    "MODELS",
    "PRECISIONS",
    "Model",
    "Precision",
    "Truth",
    "choose_device",
    "compute_error",
    "compute_truth",
    "find_obstacle",
    "keep_seed",
    "set_matmul_precision",
    "share_product",
]

keep_old_names(__name__)
