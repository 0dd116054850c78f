"""What an operand of an epilogue is: one value for each column, row or element, or one for all."""

from torch import Tensor

from ..checks import REFERENCE_DTYPES, is_dense, refuse_kind

SCALAR, ROW, COLUMN, TILE = "scalar", "row", "column", "tile"
# In place of (M, N) while a function is traced: twice, so that sizes that it reads are seen.
TRACED_SIZES = ((3, 5), (4099, 8209))
# In place of M, where N is known: more than any N, so that no two sizes are the same.
TRACED_ROWS = (998244353, 1000000007)


def find_kind(op: str, name: str, operand: Tensor, x: Tensor, n: int) -> str:
    """By its shape, as PyTorch broadcasts it to (..., N) of x (..., K): () and (1,) are a scalar,
    (N,) and (1, N) a row, (..., 1) a column, (..., N) a tile. Where M = N, (N,) is a row."""
    full = (*x.shape[:-1], n)
    shape = tuple(operand.shape)
    if operand.dim() <= len(full):
        if all(size == 1 for size in shape):
            return SCALAR
        if shape[-1] == n and all(size == 1 for size in shape[:-1]):
            return ROW
        if shape == (*full[:-1], 1):
            return COLUMN
        if shape == full:
            return TILE
    leading = ", ".join(str(size) for size in x.shape[:-1])
    must = f"shape (), ({n},), ({leading}, 1) or ({leading}, {n})"
    raise RuntimeError(f"{op}: {name} must have {must}, got {shape}")


def check_operand(
    op: str, name: str, operand: Tensor, x: Tensor, may_be_on_host: bool = False
) -> None:
    """may_be_on_host: one of no dimension may lie on the CPU beside x elsewhere."""
    if not is_dense(operand):
        refuse_kind(op, name, operand)
    if operand.dtype not in REFERENCE_DTYPES:
        dtypes = "float16, bfloat16, float32 or float64"
        dtype = str(operand.dtype).removeprefix("torch.")
        raise RuntimeError(f"{op}: {name} must be {dtypes}, got {dtype}")
    is_on_host = may_be_on_host and operand.is_cpu and operand.dim() == 0
    if operand.device != x.device and not is_on_host:
        raise RuntimeError(
            f"{op}: {name} must be on the device of x, {x.device}, got {operand.device}"
        )


def take_operand(operand: Tensor, kind: str, acc: Tensor) -> Tensor:
    """As the function gets it beside acc (M, N): of its dtype, and a row or a scalar of as many
    dimensions as it was given with, at most two."""
    m, n = acc.shape
    if kind == COLUMN:
        operand = operand.reshape(m, 1)
    elif kind == TILE:
        operand = operand.reshape(m, n)
    elif operand.dim() > 2:
        operand = operand.reshape(1, operand.shape[-1])
    return operand.to(acc.dtype)


def find_traced_shape(kind: str, dimensions: int, sizes: tuple[int, int]) -> tuple[int, ...]:
    """Of what stands for such an operand while a function is traced."""
    m, n = sizes
    if kind == COLUMN:
        return m, 1
    if kind == TILE:
        return m, n
    last = (n,) if kind == ROW else (1,)
    return ((1, *last), last)[dimensions == 1] if dimensions else ()
