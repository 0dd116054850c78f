"""The precision of products with fp32 inputs: an explicit word, or PyTorch's own setting.

"ieee" (engine fp16x3), from K = 33 on: each row of x and of weight is multiplied by an exact power
of two, which brings its largest number to between 2^13 and 2^15, and each number v is split into
hi = fp16(v) and lo = fp16(2^11 * (v - hi)). Tensor cores add up hi * hi over 32 or 64 of K; these
sums are added in fp32. So is 2^-11 times the sum of lo * hi + hi * lo over all of K. Then the
powers of two are taken back. For every product

    |y - exact| <= (14 * 2^-22 + K * 2^-28) * (|x| @ |weight|.T) + 2^-149

where 3 * 2^-22 is what two numbers of 11 bits leave of a product of two of 24, lo * lo included;
10 * 2^-22 what the tensor cores' accumulator loses, which truncates all 16 terms of an instruction
where the largest has its last bits, in the four instructions of 64 of K; K * 2^-28 what the sums in
fp32 and those of lo lose; and 2^-149 the last rounding of a subnormal y. Relative to the norm of y
the error is far below: errors of both signs cancel, and only the accumulator's have one sign.

The last 2^-22 is for numbers more than 2^27 times smaller than the largest of their row, of which
the parts have fewer digits. What a row lost so is known; where a sum is so small that this, times
the largest of the other row, could be 2^-22 of it, it is out of reach. Such outputs are computed
from the fp32 numbers, by tf32x3 (below) where a tile has many of them. Others, and those of rows
that are not finite, are computed in plain fp32, by sums that keep to the same bound.

"tf32" (engine fp16x1, also from K = 33 on) multiplies hi alone, which has 11 bits as TF32 has, and
leaves all sums to the tensor cores: 2^-10 + 2^-11 + K * 2^-23 stands in the bracket, where 2^-11 is
for numbers more than 2^28 times smaller than the largest.

Small products take less time where nothing has to be written first (engine tf32x3). Under "tf32"
it rounds each number to TF32, and its bracket is that above. Under "ieee" each number is split in
registers into two of TF32, which together have 22 bits. The bracket is that of "ieee". Two numbers
leave 5 * 2^-22 of a product; the accumulator, of 16 of K at a time, less than 3 * 2^-22, and of 32
of K, as tiles for GPUs of compute capability 9.0 have it, less than 6 * 2^-22; sums of these in
fp32 the rest. TF32 has the exponents of fp32, so that numbers far smaller than others of their row
keep their digits. Sums that are not finite, because a number is not, or is 2^115 or larger, or they
are 2^102 or larger, are computed again by one sum in plain fp32, whose bracket is K * 2^-24; tiles
for 9.0 may compute the three sums beside such a one again, too.

Beside a weight of fp32 x may be of fp16 or bf16, whose numbers are all numbers of fp32. Then the
bounds are those of x in fp32, and the last rounding is that to the dtype of y.

Products that the estimates leave to cuBLAS have its error: under "ieee" that of sums in fp32, whose
bracket is K * 2^-24 at most; under "tf32" that of TF32, as above.

The splits are those of Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores
while surpassing the FP32 theoretical peak performance" (2022); what tensor cores do to sums is
measured in Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021).
"""

from typing import Literal, get_args

import torch

from ._namespace import ops

Precision = Literal["ieee", "tf32"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


# TorchDynamo cannot trace this read, so it takes the value as a constant. That is sound: the guard
# on global state that it puts on every compiled graph covers the TF32 setting, through both of
# PyTorch's setters, so a changed setting recompiles.
def _read_matmul_setting() -> str:
    # `fp32_precision` is right after both setters; the older `allow_tf32` and
    # `torch.get_float32_matmul_precision()` raise once anybody has used the new one.
    if _get_setting is not None:
        return _get_setting("cuda", "matmul")
    return torch.backends.cuda.matmul.fp32_precision


# What stands behind that attribute, and takes a fifth of its time: every call asks.
_get_setting = getattr(torch._C, "_get_fp32_precision_getter", None)


# All that torch.compiler.assume_constant_result does, less its import of TorchDynamo, Inductor and
# sympy, which takes as long as that of torch. A process that compiles nothing needs none of them.
_read_matmul_setting._dynamo_marked_constant = True


def find_engine(x: torch.Tensor, weight: torch.Tensor, precision: Precision | None = None) -> str:
    """What multiplies x (..., K) and weight (N, K) in a function called with this precision.

    Autocast, which may cast them before, is not asked for. The answer is that for operands in rows,
    with something behind the product, in functions other than batch norms in training, with no tile
    forced or tuned.

    Returns one of

    =========  ==================================================================================
    fp16x3     float32 rows scaled by powers of two and split into two fp16 numbers each; three
               products on tensor cores
    fp16x1     the same rows rounded to one fp16 number, which has as many digits as TF32
    tf32x3     small float32 matrices as they lie, each number split into two of TF32 on its way
               into the tensor cores; three products, under "tf32" one of the first of the two;
               of 16-bit x, which is not split, two
    plain      float16 or bfloat16 numbers as they are, both matrices being of one dtype
    simt       no tensor cores: float32 with short rows, where plain fp32 is the most accurate
    cublas     cuBLAS, called in the precision that was asked for
    reference  no kernel of ours: not on a GPU
    =========  ==================================================================================

    Raises ValueError for an unknown precision, RuntimeError where the GPU is not supported or the
    library not built.
    """
    precision = resolve_precision(precision, "find_engine", weight.dtype)
    if not x.is_cuda:
        return "reference"
    if weight.dtype != torch.float32:
        return "plain"
    n, k = weight.shape
    m = x.numel() // k if k else 0
    mixed = x.dtype != weight.dtype
    return ops.find_engine(x.device.index, k, precision, m, n, mixed)


def bound_error(k: int, precision: Precision) -> float:
    """The bracket of the bounds above: of |error| / (|x| @ |weight|.T), for float32 inputs."""
    check_precision(precision, "bound_error")
    return (
        2.0**-10 + 2.0**-11 + k * 2.0**-23 if precision == "tf32" else 14 * 2.0**-22 + k * 2.0**-28
    )


def check_precision(precision: str | None, op_name: str) -> None:
    """Raise ValueError unless `precision` is ``"ieee"``, ``"tf32"`` or None."""
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"{op_name}: precision must be 'ieee', 'tf32' or None, got {precision!r}")


def resolve_precision(
    precision: Precision | None, op_name: str, dtype: torch.dtype = torch.float32
) -> Precision:
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
