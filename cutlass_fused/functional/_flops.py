"""What torch.utils.flop_counter counts of the ops: as of the products in the plain expressions."""

import importlib.abc
import importlib.util
import sys

from .._library import ops

_COUNTER = "torch.utils.flop_counter"
# Each multiplies x by weight, its first arguments.
_PRODUCTS = (
    "linear",
    "linear_scale_leaky_relu",
    "linear_scale_batch_norm_inference",
    "linear_scale_batch_norm_train",
    "linear_batch_norm_scale_softmax_inference",
    "linear_batch_norm_scale_softmax_train",
)


def register_when_imported() -> None:
    """The counter's module imports Triton, and must be there before an instance is made: now if it
    is imported already, else behind its import."""
    if _COUNTER in sys.modules:
        _register(sys.modules[_COUNTER])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(counter) -> None:
    def count(x, weight, *args, out_val=None, **kwargs) -> int:
        rows = 1
        for size in x.shape[:-1]:
            rows *= size
        return 2 * rows * weight.shape[0] * weight.shape[1]

    for name in _PRODUCTS:
        # As register_flop_formula does, whose raw functions get tensors.
        counter.register_flop_formula(getattr(ops, name), get_raw=True)(count)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds that module once, as it would be found without this, and registers behind it."""

    def find_spec(self, name, path, target=None):
        if name != _COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _register(module)

            spec.loader.exec_module = exec_module
        return spec
