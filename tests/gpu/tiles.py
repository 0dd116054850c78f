"""The kernels of the library, by the calls that reach them."""

import contextlib
import json

import torch
from cases import IEEE, Numerics, Shape

# 16-byte aligned in every dtype, so that the forced tile serves them; ragged against every tile.
# K stays above 32: up to there "ieee" runs on CUDA cores.
TILE_SHAPES = (
    Shape(1, 264, 256, "one row"),
    Shape(33, 72, 40, "smaller than a tile in every direction"),
    Shape(133, 264, 96, "ragged last tiles"),
    Shape(257, 520, 136, "one row and eight columns more than whole tiles"),
    Shape(65, 129, 64, "odd N: vectors and output are unaligned"),
    Shape(70, 136, 2056, "few tiles, a long K that no stage divides: stream-K shares tiles"),
    Shape(2100, 1032, 1032, "more tiles than blocks fit on the GPU: stream-K mixes both ways"),
)


def list_tiles(numerics: Numerics) -> list[str]:
    """The tiles that serve these dtypes and this precision."""
    info = json.loads(torch.ops.cutlass_fused.build_info())
    return info["tiles_sm80_tf32x3" if numerics is IEEE else "tiles_sm80"]


@contextlib.contextmanager
def force_tile(name: str):
    torch.ops.cutlass_fused.force_tile(name)
    try:
        yield
    finally:
        torch.ops.cutlass_fused.force_tile("")
