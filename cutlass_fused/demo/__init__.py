"""python -m cutlass_fused.demo: the three models, their errors and times, beside PyTorch's own.

The benches time the same models, in the same precisions: those of ``cutlass_fused.comparison``,
whose names stay importable from here, too.
"""

from .._old_names import keep_old_names
from ..comparison import *  # noqa: F403
from ..comparison import __all__  # noqa: F401

keep_old_names(__name__)
