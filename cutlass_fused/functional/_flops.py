"""What torch.utils.flop_counter counts of the ops: as of the products in the plain expressions."""

from .._library import ops
from .._when_imported import when_imported
from ..epilogues import EPILOGUES
from ..weights.kept import KEEPING

# Each multiplies x by weight, its first arguments.
_PRODUCTS = (
    *EPILOGUES,
    "linear_epilogue",
    "linear_scale_batch_norm_train",
    "linear_batch_norm_scale_softmax_inference",
    "linear_batch_norm_scale_softmax_train",
)


def register_when_imported() -> None:
    """The counter's module imports Triton, and must be there before an instance is made."""
    when_imported("torch.utils.flop_counter", _register)


def _register(counter) -> None:
    def count(x, weight, *args, out_val=None, **kwargs) -> int:
        rows = 1
        for size in x.shape[:-1]:
            rows *= size
        return 2 * rows * weight.shape[0] * weight.shape[1]

    packets = [getattr(ops, name) for name in _PRODUCTS]
    packets += [op.overloadpacket for op in KEEPING.values()]
    for packet in packets:
        # Functions that are registered as raw get tensors, not shapes.
        counter.register_flop_formula(packet, get_raw=True)(count)
