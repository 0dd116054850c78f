"""Modules that have moved, importable by the names that they had.

An old name is the module itself: what is set on it by one name is set by the other too. So
``cutlass_fused.weight_splits`` holds the state that the functions use, and pickles that name a
class by the old module find it.
"""

import importlib
import sys

# Package that modules were in, within this one -> old name -> where the module is now.
_MOVED = {
    "": {"prepared": "weights.prepared", "weight_splits": "weights.splits"},
    ".demo": {
        "drawing": "comparison.drawing",
        "errors": "comparison.errors",
        "machine": "comparison.machine",
        "models": "comparison.models",
        "precisions": "comparison.precisions",
    },
}


def keep_old_names(package: str) -> None:
    """Those of the modules that were in this package, which calls this when it is imported."""
    for old, new in _MOVED[package.removeprefix(__package__)].items():
        module = importlib.import_module(f"{__package__}.{new}")
        sys.modules[f"{package}.{old}"] = module
        setattr(sys.modules[package], old, module)
