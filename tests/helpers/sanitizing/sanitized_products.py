"""Calls that launch every kernel of the products with their epilogues, each judged."""

import torch
from cases import Shape, make_call, make_special_call
from layouts import (
    cut_aligned_block,
    cut_block,
    misalign_rows,
    offset_storage,
    repeat_first_row,
    transpose,
)
from sanitized_judges import check, check_bound, make_judge
from sanitized_tiles import tell_tiles
from tiles import force_tile, list_tiles

# Ragged in every direction, more than one tile each way; the second splits K between blocks.
TILED = (Shape(133, 264, 72, "ragged"), Shape(70, 129, 1032, "long K, odd N"))
# What the tiles do not serve: narrow kernels, CUDA cores, few rows and columns, nothing to do.
OTHERS = (
    Shape(70, 134, 66, "rows of 4 bytes in 16-bit, of 8 in fp32"),
    Shape(37, 77, 51, "odd K and N"),
    Shape(520, 77, 51, "the same with more rows: tiles of `.rows` write a 16-bit y"),
    Shape(1, 1, 1, "one number"),
    Shape(3, 5, 8, "K = 8"),
    Shape(40, 72, 0, "K = 0"),
    Shape(0, 72, 64, "empty batch"),
)
LAYOUTS = (
    misalign_rows,
    offset_storage,
    cut_block,
    cut_aligned_block,
    transpose,
    repeat_first_row,
)


def run(call):
    result = call.run()
    torch.cuda.synchronize()
    check(make_judge(call), result)
    return 1


def run_tile(name, call, judge):
    """A tile that the heuristic might not take for this problem: judged by the a-priori bound."""
    with force_tile(name):
        result = call.run()
        torch.cuda.synchronize()
    check_bound(judge, result)
    return 1


def run_all(op, numerics, single=False):
    """The number of launches for this op and these dtypes."""
    launches = 0
    for shape in TILED[:1] if single else TILED:
        call = make_call(
            op, shape, numerics, "cuda", bias="offset", scale="strided", vectors="fp32"
        )
        judge = make_judge(call)
        for tile in tell_tiles(list_tiles(call)):
            launches += run_tile(tile, call, judge)
    for shape in OTHERS[:2] if single else OTHERS:
        launches += run(make_call(op, shape, numerics, "cuda"))
    call = make_call(op, TILED[0], numerics, "cuda", scale="scalar")
    for layout in (misalign_rows,) if single else LAYOUTS:
        launches += run(call.change(x=layout(call.x), weight=layout(call.weight)))
    # Infinities and NaN, which fp32 inputs compute a second time on CUDA cores.
    launches += run(make_special_call(op, numerics, "cuda"))
    return launches + (run_split_alone(call) if call.x.dtype == torch.float32 else 0)


def run_split_alone(call):
    """Only the split of weight is there, which also a row of x that is out of reach reads."""
    call.x[3, 0] = 1e30
    call.weight[:, 0] = 0  # so that the terms count of which row 3 lost all
    expected = call.run()
    split = torch.ops.cutlass_fused.split_weight(call.weight, call.precision)
    nothing = torch.full((), torch.nan, device="cuda").expand(call.weight.shape)
    alone = call.change(weight=nothing)
    result = alone.overload()(*alone.arguments(), weight_split=split)
    torch.cuda.synchronize()
    # The call itself may go to kernels that split on the fly, and round otherwise.
    check(make_judge(call, [row for row in range(call.m) if row != 3]), result)
    torch.testing.assert_close(result[3], expected[3], rtol=1e-2, atol=1e-2)
    return 1
