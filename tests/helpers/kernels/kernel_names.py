"""The short names of the kernels that the tables of src/kernels/table.py must give."""

import itertools
import re

from kernels.table import (
    EPILOGUES,
    EPILOGUES_OF_ANY_MAJOR,
    EPILOGUES_OF_FP32,
    MATHS_OF_SPLIT_ROWS,
)

# The tiles of include/cutlass_fused/gemm/sm90_batch_norm/tiles.hpp.
STATISTICS_TILES = {"Fp16x3": "128x128x256B/2x1.cooperative.swapped"}
LARGE_STATISTICS_TILE = "128x256x128B/2x1.cooperative.swapped"
GROUP_TILE = "128x256x128B/1x2.cooperative.swapped"
# The limit of can_find_statistics in include/cutlass_fused/gemm/sm80/tiles.hpp.
LEAST_ROWS_SM80 = 128
# The names of those of backward passes.
GRADIENT_KERNELS = (
    "leaky_relu_gradient",
    "join_column_sums",
    "add_up_batch_norm_gradient",
    "join_batch_norm_gradient",
    "apply_batch_norm_gradient",
    "differentiate_batch_norm_on_chip",
    "unscale_columns",
    "scale_gradient",
    "softmax_gradient",
    "softmax_gradient_short",
)
# Patterns of the names of kernels of 16-bit x and an fp32 weight.
_NARROW = ("__half", "__nv_bfloat16")
MIXED_KERNELS = [
    rf"cutlass_fused::gemm_mixed<.*, {x}, .*{major}, cutlass_fused::{epilogue}>"
    for x in _NARROW
    for major in (0, 1)
    for epilogue in EPILOGUES_OF_ANY_MAJOR
]
# And of those of short sums.
SHORT_K = r"cutlass_fused::gemm_short_k<"
_NAMES = (*EPILOGUES, *EPILOGUES_OF_FP32)
_TAILS = ["NoShortKTail", *(rf"ShortKTail<cutlass_fused::{name}>" for name in _NAMES)]
SHORT_K_KERNELS = [
    rf"{SHORT_K}cutlass_fused::ShortKBlock<{block}>, cutlass_fused::{tail}"
    for block in ("1, true", "1, false", "2, false")
    for tail in _TAILS
]
# And of those of fp32 matrices as they lie, for 9.0: their beginning.
TF32X3_SM90 = r"cutlass_fused::gemm_tf32x3_sm90<"


def list_tf32x3_sm90(info):
    """Patterns of one kernel each: of every tile, epilogue, and order of operands."""
    for tile in info["tiles_tf32x3"]:
        if ".sm90" in tile:
            m, n = re.match(r"(\d+)x(\d+)", tile).groups()
            for epilogue in (*EPILOGUES_OF_ANY_MAJOR, *EPILOGUES_OF_FP32):
                for x, weight in itertools.product((0, 1), repeat=2):
                    if epilogue in EPILOGUES_OF_FP32 and (x, weight) == (1, 0):
                        continue  # which no layer has
                    yield (
                        rf"{TF32X3_SM90}cutlass_fused::TileTf32x3Sm90<{m}, {n}, .*>, "
                        rf"\(cutlass_fused::Major\){x}, \(cutlass_fused::Major\){weight}, "
                        rf"cutlass_fused::{epilogue}>"
                    )


def list_tiles(arch, math, info):
    table = f"tiles_{arch.lower()}"
    return info.get(f"{table}_{math.lower()}", info[table])


def finds_statistics_sm80(tile):
    """Whether it has a second kernel: blocks compute all of a large tile."""
    return ".streamk" not in tile and int(re.match(r"\d+", tile)[0]) >= LEAST_ROWS_SM80


def list_tile_kernels(row, info):
    """Those of a row of the table: one for each tile."""
    alignment = "" if row.arch == "Sm90" else ", 16"
    for tile in list_tiles(row.arch, row.math, info):
        yield f"gemm_{row.arch.lower()}<{tile}, {row.math}, {row.epilogue}{alignment}>"


def list_statistics_names(arch, math, info):
    """Those with the statistics of a batch, or in front of a softmax."""
    if arch == "Sm80":
        for tile in list_tiles(arch, math, info):
            if finds_statistics_sm80(tile):
                yield f"gemm_sm80<{tile}, {math}, StatisticsSm80, 16>"
        return
    yield f"gemm_sm90<{STATISTICS_TILES.get(math, LARGE_STATISTICS_TILE)}, {math}, Statistics>"
    if math not in MATHS_OF_SPLIT_ROWS:
        yield f"gemm_sm90<{GROUP_TILE}, {math}, BatchNormInGroup>"
        yield f"gemm_sm90<{LARGE_STATISTICS_TILE}, WithLogits, ScaleBatchNorm>"
