"""Calls that launch every kernel with an open epilogue, and every kind of kernel that is compiled
while a program runs."""

import torch
import traced
from cases import Shape, make_call
from program_cases import CASES
from program_texts import make_program
from row_cases import ROW_CASES, find_row_program
from tiles import (
    force_tile,
    has_sm90_kernels,
    has_whole_pieces,
    list_sm80_tiles,
    list_sm90_tiles,
    read_build_info,
)

from cutlass_fused.programs.program import run_whole
from cutlass_fused.programs.traced import TracedFunction

ops = torch.ops.cutlass_fused
# relu(acc + p0) * p1 + p2 * p3 of a row, a tile, a column and a number, and acc + p0.
TEXT = make_program(
    *("v0 = add acc p0", "v1 = relu v0", "v2 = mul v1 p1", "v3 = mul p2 p3"),
    *("v4 = add v2 v3", "return v4 v0"),
    operands=4,
)
SHAPE = Shape(200, 136, 328, "tiles that end with M and N")
# A function of one kind of operands each, and two results.
ELEMENTWISE = ("gelu", "film", "layer_norm_apply", "temperature", "pre_activation")
ROWS = ("softmax", "layer_norm", "group_norm", "sum", "window_maximum", "three")


def check(results, truth, coarse):
    torch.cuda.synchronize()
    for result, exact in zip(results, truth, strict=True):
        limit = {"rtol": 0.05, "atol": 0.05} if coarse else {"rtol": 1e-3, "atol": 1e-3}
        torch.testing.assert_close(result.double(), exact, **limit)


def list_tiles_as_they_lie(call):
    """Those of tf32x3 that have an open kernel; one of them with K in slices of a cluster."""
    if call.x.dtype != torch.float32 or not has_sm90_kernels(call.x.device):
        return []
    tiles = [tile for tile in read_build_info()["tiles_tf32x3"] if "sm90" not in tile]
    return [*tiles, f"{tiles[0]}@k2"]


def run_open_products(numerics):
    """Every tile of this Math row, and those of tf32x3; and a repair where rows are split, also of
    the parts alone."""
    call = make_call("linear", SHAPE, numerics, "cuda")
    assert has_whole_pieces(call.x) and has_whole_pieces(call.weight)
    dtype = call.result_dtype
    operands = [
        torch.randn(call.n, device="cuda").to(dtype),
        torch.randn(call.m, call.n, device="cuda").to(dtype),
        torch.randn(call.m, 1, device="cuda"),
        torch.randn((), device="cuda"),
    ]
    out = f"{dtype},float32".replace("torch.", "")
    launches, coarse = 0, numerics.dtype.itemsize == 2 or numerics.precision == "tf32"
    is_split = numerics.dtype == torch.float32

    def run(x, weight, split=None):
        z = x.double() @ weight.double().t() + operands[0].double()
        wide = [operand.double() for operand in operands]
        # Of the parts alone: the weight itself holds nothing.
        given = weight if split is None else torch.full_like(weight, torch.nan)
        found = ops.linear_epilogue(x, given, operands, TEXT, call.precision, out, split)
        check(found, (z.relu() * wide[1] + wide[2] * wide[3], z), coarse or split is not None)
        return 1

    of_row = [*list_sm90_tiles(call), *list_sm80_tiles(call)]
    for tile in [*of_row, *list_tiles_as_they_lie(call)]:
        with force_tile(tile):
            launches += run(call.x, call.weight)
    if is_split:
        # A row that lost all but what it has beside 1e30, which counts for nothing.
        call.weight[:, 5] = 0
        call.x[3, 5] = 1e30
        with force_tile("split_rows"):
            launches += run(call.x, call.weight)
            split = ops.split_weight(call.weight, call.precision)
            launches += run(call.x, call.weight, split)
    return launches


def run_elementwise(dtype):
    """The kernel of a function of elements in memory, of whole pieces and of any rows, and that of
    its sums over the rows."""
    launches = 0
    for name in ELEMENTWISE:
        case = CASES[name]
        for shape in ((133, 264), (37, 77), (1, 1)):
            acc, *operands = (
                each.cuda() for each in traced.make_tensors(case, torch.float32, shape)
            )
            acc = acc.to(dtype)
            program = TracedFunction(name, case.function).find(traced.find_key(case)).program
            found = ops.apply_program(acc, operands, program.text, "float32")
            wide = [operand.double() for operand in operands]
            expected = run_whole(program, acc.double(), wide)
            check(found, expected, False)
            found = ops.apply_program(acc, operands, program.text, "sum:float32")
            check(found, [each.sum(0) for each in expected], False)
            launches += 2
    return launches


def run_rows(dtype):
    """That of a function along rows: of a part of a warp, of several warps, of pieces of three
    times a power of two, of many elements."""
    launches = 0
    for name in ROWS:
        for shape in ((5, 16), (37, 1008), (7, 768), (3, 20000)):
            case, program = ROW_CASES[name], find_row_program(name, shape[1]).program
            acc, *operands = (
                each.cuda() for each in traced.make_tensors(case, torch.float32, shape)
            )
            acc = acc.to(dtype)
            found = ops.apply_program(acc, operands, program.text, "float32")
            wide = [operand.double() for operand in operands]
            check(found, run_whole(program, acc.double(), wide), False)
            launches += 1
    return launches
