"""The three models beside PyTorch's own: what the demo and the benches share, and nobody else.

``models.py`` has the models, plain and fused, ``precisions.py`` the precisions that they are run
in, ``errors.py`` the truth and the error against it, ``machine.py`` what they run on, and
``drawing.py`` the picture of the speed-ups.
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
