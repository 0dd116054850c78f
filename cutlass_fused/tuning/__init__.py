"""The fastest kernel for each product, by timing the candidates instead of estimating them.

``_autotune.py`` holds the context, ``_fastest.py`` the timing of one product, ``_tuned.py`` what is
known in this process, ``_cache.py`` the files that keep it for the next one. The ops record the
products that they meet while a context is open (src/launch/recorded_products.hpp) and look up what
was found (include/cutlass_fused/plan/tuned_tiles.hpp).
"""

from ._autotune import autotune
from ._tuned import describe_tuning, load_tuned_tiles

__all__ = ["autotune", "describe_tuning", "load_tuned_tiles"]
