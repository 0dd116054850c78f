"""Programs within products, by kernels that are made on first use: every tile, operands of every
kind, outputs beside y, and what repairs split rows."""

import pytest
import torch
from calls import LINEAR
from cases import BF16, BF16_FP32, FP16, IEEE, TF32, Shape, make_call
from logged import run_logged
from program_texts import make_program
from tiles import force_tile, list_sm80_tiles, list_sm90_tiles

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
NUMERICS = (BF16, FP16, BF16_FP32, IEEE, TF32)
SHAPES = (
    Shape(256, 512, 256, "whole tiles"),
    Shape(200, 136, 328, "tiles that end with M and N"),
    Shape(130, 72, 64, "few columns, which some tiles alone serve"),
    Shape(200, 132, 328, "rows of 16-bit numbers that are no whole pieces"),
    Shape(3000, 2056, 64, "many tiles to a block, whose operands come ahead"),
)
# relu(acc + p0) * p1 + p2 * p3 of a row, a tile, a column and a number, and acc + p0.
TEXT = make_program(
    *("v0 = add acc p0", "v1 = relu v0", "v2 = mul v1 p1", "v3 = mul p2 p3"),
    *("v4 = add v2 v3", "return v4 v0"),
    operands=4,
)


def compute(acc, row, tile, column, number):
    shifted = acc + row
    return shifted.relu() * tile + column * number, shifted


def name(dtype):
    return str(dtype).removeprefix("torch.")


def make_operands(call, tile_dtype=None, column_dtype=torch.float32):
    def normal(*shape, dtype):
        return torch.randn(shape, device=call.x.device).to(dtype)

    y = call.result_dtype
    return [
        normal(call.n, dtype=y),
        normal(call.m, call.n, dtype=tile_dtype or y),
        normal(call.m, 1, dtype=column_dtype),
        normal(dtype=torch.float32),
    ]


def check(call, operands, text=TEXT, function=compute, beside=torch.float32):
    """No output is further from float64 than twice what PyTorch's own ops give."""
    x, weight = call.x, call.weight
    exact = function(x.double() @ weight.double().T, *(o.double() for o in operands))
    types = (call.result_dtype, beside)[: len(exact)]
    old = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = call.precision == "tf32"
    try:
        eager = function((x @ weight.T).float(), *(o.float() for o in operands))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = old
    found = ops.linear_epilogue(
        x, weight, operands, text, call.precision, ",".join(map(name, types))
    )
    for y, of_eager, of_exact, dtype in zip(found, eager, exact, types, strict=True):
        assert y.dtype == dtype
        error = (y.double() - of_exact).abs().max()
        bound = 2 * (of_eager.to(dtype).double() - of_exact).abs().max()
        assert error <= bound, (dtype, float(error), float(bound))
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_every_tile(device, numerics, shape):
    """The second output is written in elements or, of 16 bits, in pieces."""
    call = make_call(LINEAR, shape, numerics, device)
    operands = make_operands(call)
    for tile in [*list_sm90_tiles(call), *list_sm80_tiles(call)]:
        with force_tile(tile):
            for beside in (torch.float32, torch.bfloat16):
                check(call, operands, beside=beside)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_three_outputs(device, numerics, shape):
    """Where each number of y1 and y2 stands: both are y in other types, bit by bit."""
    call = make_call(LINEAR, shape, numerics, device)
    row, tile, *_ = make_operands(call, torch.float16)
    text = make_program("v0 = add acc p0", "v1 = mul v0 p1", "return v1 v1 v1", operands=2)
    for each in [*list_sm90_tiles(call), *list_sm80_tiles(call)]:
        with force_tile(each):
            types = (torch.float32, torch.bfloat16, torch.float16)
            for i in range(3):
                beside = (types[i], types[(i + 1) % 3])
                names = ",".join(map(name, (call.result_dtype, *beside)))
                y, *others = ops.linear_epilogue(
                    call.x, call.weight, [row, tile], text, call.precision, names
                )
                for other, dtype in zip(others, beside, strict=True):
                    if dtype == call.result_dtype or call.result_dtype == torch.float32:
                        assert torch.equal(other, y.to(dtype)), (each, dtype)
                    else:
                        assert torch.allclose(other.float(), y.float(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
def test_vectors_of_many_tiles(device, numerics):
    """What comes ahead of a tile is that tile's, with a source and without one."""
    call = make_call(LINEAR, SHAPES[-1], numerics, device)
    _, tile, column, number = make_operands(call)
    rows = [torch.randn(call.n, device=device) for _ in range(4)]
    lines = (
        *("v0 = add acc p0", "v1 = mul v0 p1", "v2 = add v1 p2", "v3 = mul v2 p3"),
        *("v4 = add v3 p4", "v5 = mul v4 p5"),
    )
    text = make_program(*lines, "return v5", operands=6)
    with_source = make_program(*lines, "v6 = add v5 p6", "return v6", operands=7)

    def without(z, a, b, c, d, e, f):
        return ((((z + a) * b + c) * d + e) * f,)

    def with_tile(z, *operands):
        return (without(z, *operands[:6])[0] + operands[6],)

    operands = [*rows, column, number]
    for each in list_sm90_tiles(call):
        with force_tile(each):
            for _ in range(3):
                check(call, operands, text, without)
                check(call, [*operands, tile], with_source, with_tile)


@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
def test_tiles_of_other_types(device, numerics):
    """Of another type than y, of rows that are not whole pieces, and two of them."""
    call = make_call(LINEAR, SHAPES[1], numerics, device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        check(call, make_operands(call, dtype, dtype))
    operands = make_operands(call)
    wide = torch.randn(call.m, call.n + 3, device=device).to(call.result_dtype)
    operands[1] = wide[:, 1 : call.n + 1]
    check(call, operands)
    text = make_program("v0 = mul acc p0", "v1 = add v0 p1", "return v1")
    check(call, [operands[1], make_operands(call)[1]], text, lambda z, a, b: (z * a + b,))


@pytest.mark.parametrize("precision", [IEEE, TF32], ids=str)
def test_repaired(device, precision):
    """Rows beside a number of 1e30 lose all others, which alone count: in y and beside it."""
    call = make_call(LINEAR, SHAPES[1], precision, device)
    call.x[:, 7] = 0
    call.weight[:, 5] = 0
    call.x[::9, 5] = 1e30
    with force_tile("split_rows"):
        check(call, make_operands(call))
        # What makes a number of NaN hides what was lost: not within the product.
        text = make_program("v0 = gt acc p0", "v1 = where v0 acc p0", "return v1", operands=1)
        check(call, make_operands(call)[:1], text, lambda z, row: (torch.where(z > row, z, row),))


CODE = """
    import sys, torch, cutlass_fused
    x, w = torch.randn(2048, 1024).cuda().{dtype}(), torch.randn(1024, 1024).cuda().{dtype}()
    torch.ops.cutlass_fused.linear_epilogue(x, w, [w[:, 0].contiguous()], {text!r}, {precision!r})
    """


@pytest.mark.parametrize(
    "dtype, precision", [("bfloat16", "ieee"), ("half", "ieee"), ("float", "ieee")]
)
def test_within(device, dtype, precision, tmp_path):
    """A kernel of the library is made, without a word on stderr beside the log. The product is so
    large that split rows serve fp32."""
    text = make_program("v0 = add acc p0", "v1 = sin v0", "return v1", operands=1)
    code = CODE.format(dtype=dtype, precision=precision, text=text)
    _, log = run_logged(code, CUTLASS_FUSED_CACHE_DIR=str(tmp_path))
    assert len(log) == 1 and "; program within" in log[0], log
    assert len(list((tmp_path / "kernels").iterdir())) == (2 if dtype == "float" else 1)


def test_captured(device):
    """A graph is captured of what ran before, and of nothing else."""
    call = make_call(LINEAR, SHAPES[0], BF16, device)
    text = make_program("v0 = mul acc p0", "v1 = sub v0 p0", "return v1", operands=1)
    row = make_operands(call)[:1]

    def run():
        return ops.linear_epilogue(call.x, call.weight, row, text)[0]

    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match="must run once before a graph is captured"),
        torch.cuda.graph(graph),
    ):
        run()
    expected = run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run()
    y.zero_()
    graph.replay()
    assert torch.equal(y, expected)
