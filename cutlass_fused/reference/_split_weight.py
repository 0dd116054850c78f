"""split_weight, and what keeps its results: split_weight_checked and split_weight_if_changed."""

import torch
from torch import Tensor

from ..checks import check_weight

# ChecksumState in gemm/fp16x3_kept/checksum.hpp: two sums, and what the kernels need.
_WORDS = 260
_IS_KEPT, _HAS_CHANGED = 1, 1 << 32
_MOST_ELEMENTS = 2**31


def split_weight(weight: Tensor, precision: str = "ieee") -> Tensor:
    """What the products of float32 matrices on a GPU read in place of weight: bytes, to be handed
    to them as `weight_split`, with the same weight and precision.

    Each row is weight[n] = (hi[n] + 2^-11 * lo[n]) * h[n]^2 with fp16 numbers hi and lo and a power
    of two h[n]; "tf32" has no lo. Empty where nothing is split: on the CPU, and up to K = 32.
    """
    check_weight("split_weight", weight, precision)
    return torch.empty(0, dtype=torch.uint8, device=weight.device)


def split_weight_checked(weight: Tensor, precision: str = "ieee") -> tuple[Tensor, Tensor]:
    """What split_weight returns, and a checksum of weight: int64 numbers that belong to it.

    weight is contiguous, aligned to 16 bytes, has fewer than 2^31 elements, and a multiple of 4 in
    a row.
    """
    _check("split_weight_checked", weight, precision)
    checksum = torch.zeros(_WORDS, dtype=torch.int64, device=weight.device)
    checksum[:2] = compute_checksum(weight)
    checksum[2] = _IS_KEPT
    return split_weight(weight, precision), checksum


def split_weight_if_changed(
    weight: Tensor, split: Tensor, checksum: Tensor, precision: str = "ieee"
) -> None:
    """Makes split and checksum what split_weight_checked would return now, of a weight of the same
    shape, in the same precision. Where checksum is that of weight already, the GPU reads weight,
    and no more: it finds that by itself, in each replay of a captured graph too. Calls of one
    split are on one stream, as is what reads it.
    """
    op = "split_weight_if_changed"
    _check(op, weight, precision)
    expected = split_weight(weight, precision), torch.empty(_WORDS, dtype=torch.int64)
    for name, found, like in zip(("split", "checksum"), (split, checksum), expected, strict=True):
        _check_kept(op, name, found, like)
    now = compute_checksum(weight)
    has_changed = not checksum[2] & _IS_KEPT or not torch.equal(checksum[:2], now)
    checksum[:2] = now
    checksum[2] = _IS_KEPT | (_HAS_CHANGED if has_changed else 0)


def _check(op: str, weight: Tensor, precision: str) -> None:
    check_weight(op, weight, precision)
    is_in_rows = weight.is_contiguous() and weight.shape[1] % 4 == 0
    if not is_in_rows or weight.numel() >= _MOST_ELEMENTS:
        raise RuntimeError(
            f"{op}: weight must be contiguous, have fewer than 2^31 elements, and K a multiple of "
            f"4, got shape {tuple(weight.shape)}, strides {weight.stride()}"
        )


def _check_kept(op: str, name: str, found: Tensor, like: Tensor) -> None:
    if (found.dtype, found.shape) != (like.dtype, like.shape) or not found.is_contiguous():
        raise RuntimeError(
            f"{op}: {name} must be what split_weight_checked returns for this weight and "
            f"precision, {_describe(like)}, got {_describe(found)}"
        )


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def compute_checksum(weight: Tensor) -> Tensor:
    """Two sums of all words of a matrix, each mixed with its place: gemm/fp16x3_kept/checksum.hpp.
    As int64, in whose products and sums the bits are those of numbers without a sign."""
    words = weight.detach().reshape(-1).view(torch.int32).long()
    place = torch.arange(words.numel(), device=weight.device)
    mixed = _cut(words + place * 0x9E3779B1)
    mixed = _cut((mixed ^ mixed >> 16) * 0x7FEB352D)
    other = _cut((mixed ^ mixed >> 15) * 0x846CA68B)
    return torch.stack([(mixed * other).sum(), other.sum()])


def _cut(numbers: Tensor) -> Tensor:
    return numbers & 0xFFFFFFFF
