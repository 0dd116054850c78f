"""The precision of products with fp32 inputs: an explicit word, or PyTorch's own setting."""

import torch

PRECISIONS = ("ieee", "tf32")


# TorchDynamo cannot trace this read, so it takes the value as a constant. That is sound: the guard
# on global state that it puts on every compiled graph covers the TF32 setting, through both of
# PyTorch's setters, so a changed setting recompiles.
@torch.compiler.assume_constant_result
def _read_matmul_setting() -> str:
    # `fp32_precision` is right after both setters; the older `allow_tf32` and
    # `torch.get_float32_matmul_precision()` raise once anybody has used the new one.
    return torch.backends.cuda.matmul.fp32_precision


def check_precision(precision: str | None, op_name: str) -> None:
    """Raise ValueError unless `precision` is ``"ieee"``, ``"tf32"`` or None."""
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"{op_name}: precision must be 'ieee', 'tf32' or None, got {precision!r}")


def resolve_precision(
    precision: str | None, op_name: str, dtype: torch.dtype = torch.float32
) -> str:
    """The precision that an op on inputs of this dtype is called with.

    ``"ieee"`` and ``"tf32"`` stand for themselves. None follows
    ``torch.backends.cuda.matmul.fp32_precision``, which ``torch.set_float32_matmul_precision``
    sets too: ``"tf32"`` gives ``"tf32"``, everything else ``"ieee"``. Where the dtype is not
    float32 the precision has no meaning and None gives ``"ieee"`` without the read, which takes
    a microsecond.

    Raises ValueError for any other word.
    """
    if precision is None:
        if dtype != torch.float32:
            return "ieee"
        return "tf32" if _read_matmul_setting() == "tf32" else "ieee"
    check_precision(precision, op_name)
    return precision
