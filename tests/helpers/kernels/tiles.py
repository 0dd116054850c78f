"""The kernels of the library, by the calls that reach them."""

import contextlib
import json
import re

import torch
from calls import STATISTICS_OPS, Call
from cases import Shape

from cutlass_fused.epilogues import EPILOGUES
from kernels.table import EPILOGUES_OF_ANY_MAJOR, MATH_ROWS

# 16-byte aligned in every dtype, so that the forced tile serves them; ragged against every tile.
# K stays above 32: up to there "ieee" runs on CUDA cores.
TILE_SHAPES = (
    Shape(1, 264, 256, "one row"),
    Shape(33, 72, 40, "smaller than a tile in every direction"),
    Shape(133, 264, 96, "ragged last tiles"),
    Shape(257, 520, 136, "one row and eight columns more than whole tiles"),
    Shape(65, 129, 64, "odd N: vectors and output are unaligned"),
    Shape(40, 132, 96, "N of whole pairs, not of 16 bytes: TMA cannot write 16-bit results"),
    Shape(70, 136, 2056, "few tiles, a long K that no stage divides: stream-K shares tiles"),
    Shape(2100, 1032, 1032, "more tiles than blocks fit on the GPU: stream-K mixes both ways"),
)
# A grid's extent along y, in tiles: of SM90 kernels that are not persistent.
MAX_COLUMN_TILES = 65535
# From here on a result may be copied to rows that TMA cannot write.
COPIED_ROWS = 512
# Columns of a tile that slices K and has the registers for an fp32 result.
WIDEST_FP32_SLICES = 128


def read_build_info() -> dict:
    return json.loads(torch.ops.cutlass_fused.build_info())


def list_sm80_tiles(call: Call) -> list[str]:
    """The tiles for these dtypes and this precision, on any GPU."""
    return read_tiles("tiles_sm80", call)


def read_tiles(table: str, call: Call) -> list[str]:
    """Those of a Math row that has a list of its own, else the generation's."""
    info = read_build_info()
    precision = f"k{call.precision.title()}"
    maths = [r.name for r in MATH_ROWS if r.type == "kFloat32" and r.precision == precision]
    own = f"{table}_{maths[0]}" if call.x.dtype == torch.float32 else table
    return info.get(own, info[table])


def has_sm90_kernels(device: torch.device) -> bool:
    """Whether it is a GPU of compute capability 9.0, and the library has kernels of its own."""
    return torch.cuda.get_device_capability(device) == (9, 0) and bool(
        read_build_info()["tiles_sm90"]
    )


def serves(tile: str, call: Call) -> bool:
    """Whether an SM90 tile can compute this call, as its name tells."""
    if ".direct" not in tile and call.result_dtype != call.x.dtype:
        return False
    if ".direct" not in tile and ".rows" not in tile:  # TMA writes y, to rows of whole 16 bytes
        copied = call.x.itemsize == 2 and call.m >= COPIED_ROWS
        if call.n * call.x.itemsize % 16 != 0 and not copied:
            return False
    columns = call.m if ".swapped" in tile else call.n
    width = int(re.match(r"\d+x(\d+)x", tile)[1])
    if slices_k(tile) and width > WIDEST_FP32_SLICES and call.result_dtype != call.x.dtype:
        return False
    return is_persistent(tile) or columns <= MAX_COLUMN_TILES * width


def slices_k(tile: str) -> bool:
    """Whether several blocks share a tile, each with a slice of K."""
    return ".split" in tile


def is_persistent(tile: str) -> bool:
    return ".cooperative" in tile or ".pingpong" in tile


def name_raster(tile: str, count: int) -> str:
    """Slices of K where there are any, panels along N for a persistent one; nothing for others."""
    return f"@k{count}" if slices_k(tile) else f"@n{count}" if is_persistent(tile) else ""


def list_sm90_tiles(call: Call) -> list[str]:
    """The SM90 tiles that serve the call, whose rows of x and weight are aligned to 16 bytes."""
    if not has_sm90_kernels(call.x.device):
        return []
    return [tile for tile in read_tiles("tiles_sm90", call) if serves(tile, call)]


def list_cublas(call: Call) -> list[str]:
    """The product by cuBLAS and the epilogue behind it, where that can be forced."""
    serves = call.x.dtype.itemsize == 2 or call.op not in STATISTICS_OPS
    return ["cublas"] if serves and call.k > 0 else []


def has_whole_pieces(matrix: torch.Tensor) -> bool:
    """Whether each line begins at a multiple of 16 bytes: a row, or a column of a matrix that lies
    along its rows. Of a batch each matrix is to have such lines."""
    (rows, k), (row, column) = matrix.shape[-2:], matrix.stride()[-2:]
    line = column if column != 1 else k if rows == 1 else row
    steps = (*matrix.stride()[:-2], line)
    return matrix.data_ptr() % 16 == 0 and not any(step * matrix.itemsize % 16 for step in steps)


def list_tf32x3(x: torch.Tensor, weight: torch.Tensor) -> list[str]:
    """The tiles that read these fp32 matrices as they lie, under "ieee". Those for 9.0 read whole
    pieces."""
    own = has_sm90_kernels(x.device) and has_whole_pieces(x) and has_whole_pieces(weight)
    return [tile for tile in read_build_info()["tiles_tf32x3"] if own or ".sm90" not in tile]


def list_tf32x3_tiles(call: Call) -> list[str]:
    """Those that can be forced for the call. "tf32" and some epilogues have none for 9.0."""
    if call.x.dtype != torch.float32 or call.op in STATISTICS_OPS:
        return []
    functor = EPILOGUES[call.op].functor.struct
    every = functor in EPILOGUES_OF_ANY_MAJOR and call.precision == "ieee"
    return [tile for tile in list_tf32x3(call.x, call.weight) if every or ".sm90" not in tile]


def list_tiles(call: Call) -> list[str]:
    """All that can be forced for the call, whose rows of x and weight are aligned to 16 bytes."""
    generations = list_sm80_tiles(call) + list_sm90_tiles(call)
    return generations + list_tf32x3_tiles(call) + list_cublas(call)


@contextlib.contextmanager
def force_tile(name: str):
    torch.ops.cutlass_fused.force_tile(name)
    try:
        yield
    finally:
        torch.ops.cutlass_fused.force_tile("")
