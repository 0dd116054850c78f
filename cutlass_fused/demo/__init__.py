"""python -m cutlass_fused.demo: the three models, their errors and times, beside PyTorch's own.

The benches time the same models, in the same precisions.
"""

from .errors import Truth, compute_error, compute_truth
from .machine import choose_device, find_obstacle, keep_seed
from .models import MODELS, Model, share_product
from .precisions import PRECISIONS, Precision, set_matmul_precision

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
