"""fp32 products of matrices as they lie: every tile, cut of K, order and alignment of operands."""

import itertools
import json
import re

import pytest
import torch
from accuracy import Judge
from calls import BATCH_NORM, LEAKY, LINEAR
from cases import IEEE, TF32, Shape, make_call, make_special_call
from check_call import check_call, run_poisoned
from layouts import MAJORS, lay, name_majors
from logged import run_logged
from tiles import force_tile, has_sm90_kernels, list_tf32x3, list_tf32x3_tiles

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

SHAPES = (
    Shape(1, 1, 33, "one output; K one above what CUDA cores multiply"),
    Shape(33, 65, 100, "one row and column more than a warp has; pieces of four end with the row"),
    Shape(129, 66, 97, "odd K: no piece of four is aligned"),
    Shape(70, 132, 1000, "K ends inside a stage, and each slice of K has several"),
    Shape(257, 200, 4100, "sums are moved many times"),
)
# For tiles of 9.0, whose matrices lie in lines of whole 16 bytes.
SHAPES_SM90 = (
    Shape(130, 66, 33, "ragged in every direction; rows of y are no whole pieces"),
    Shape(130, 66, 50, "a piece of four ends with the row"),
    Shape(1, 3, 36, "few outputs"),
    Shape(130, 66, 1036, "K ends inside a stage, each slice of K has several"),
    Shape(390, 260, 2100, "several tiles, and the most shares of K"),
    Shape(2100, 1100, 70, "blocks take several tiles"),
)


def make_major_call(op, shape, numerics, device, majors, make=make_call):
    call = make(op, shape, numerics, device) if shape else make(op, numerics, device)
    return lay(call, majors)


def list_forced(call):
    """Each tile, with K as it is, cut into slices of a cluster, and into parts of several."""
    tiles = list_tf32x3_tiles(call)
    assert tiles
    stages = {tile: -(-call.k // int(re.match(r"\d+x\d+x(\d+)", tile)[1])) for tile in tiles}
    return [f"{tile}@k{n}" for tile in tiles for n in (1, 2, 4, 8, 16, 64) if n <= stages[tile]]


def list_forced_sm90(call):
    """The same of the tiles for 9.0."""
    if not has_sm90_kernels(call.x.device):
        pytest.skip("the GPU or the library has no SM90 kernels")
    forced = [tile for tile in list_forced(call) if ".sm90" in tile]
    assert forced
    return forced


def widen(matrix, offset):
    """The same numbers in lines of whole 16 bytes, so many elements behind the first, among NaN."""
    lines = matrix.t() if matrix.stride(0) == 1 else matrix
    width = lines.shape[1] + 4 + -lines.shape[1] % 4
    around = lines.new_full((lines.shape[0] + 1, width), torch.nan)
    view = around[:-1, offset : offset + lines.shape[1]]
    view.copy_(lines)
    return view if lines is matrix else view.t()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_every_tile_and_cut(device, majors, shape):
    call = make_major_call(LINEAR, shape, IEEE, device, majors)
    judge = Judge(call)
    for forced in list_forced(call):
        with force_tile(forced):
            result, again = run_poisoned(call), run_poisoned(call)
        judge.check(result)
        assert torch.equal(result, again), forced


@pytest.mark.parametrize("shape", SHAPES_SM90, ids=str)
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
@pytest.mark.parametrize("op", [LINEAR, LEAKY])
def test_every_tile_and_cut_of_sm90(device, op, majors, shape):
    call = make_major_call(op, shape, IEEE, device, majors)
    call = call.change(x=widen(call.x, 0), weight=widen(call.weight, 0))
    judge = Judge(call)
    for forced in list_forced_sm90(call):
        with force_tile(forced):
            result, *again = (run_poisoned(call) for _ in range(3))
        judge.check(result)
        assert all(torch.equal(result, other) for other in again), forced


def test_sm90_tiles_that_cannot_serve_are_refused(device):
    call = make_call(LINEAR, SHAPES[3], IEEE, device)
    refused = "linear: the forced tile must be one that"
    for forced in list_forced_sm90(call):
        for name in ("x", "weight"):
            moved = call.change(**{name: widen(getattr(call, name), 1)})
            with force_tile(forced), pytest.raises(RuntimeError, match=refused):
                moved.run()
        other = make_call(BATCH_NORM, SHAPES[3], IEEE, device)  # has kernels for every GPU alone
        with force_tile(forced), pytest.raises(RuntimeError, match="the forced tile must be one"):
            other.run()


@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
@pytest.mark.parametrize("op", [LEAKY, BATCH_NORM])
def test_other_epilogues(device, op, majors):
    """Of any order: where no kernel reads them as they lie, they are copied."""
    for shape in SHAPES[1:4]:
        for numerics in (IEEE, TF32):
            check_call(make_major_call(op, shape, numerics, device, majors))


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_rows_that_begin_anywhere(device, majors, offset):
    """Pieces of 16 bytes are read only where every line begins at a multiple of them: at an offset
    of 0. The last piece of a line ends within 16 bytes."""
    call = make_major_call(LINEAR, Shape(70, 71, 66, "no whole pieces"), IEEE, device, majors)
    call = call.change(x=widen(call.x, 0), weight=widen(call.weight, 0))
    judge = Judge(call)
    for name in ("x", "weight"):
        moved = call.change(**{name: widen(getattr(call, name), offset)})
        for forced in list_forced(moved):
            with force_tile(forced):
                judge.check(run_poisoned(moved))


@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_special_values(device, majors):
    call = make_major_call(LINEAR, None, IEEE, device, majors, make_special_call)
    judge = Judge(call)
    for forced in list_forced(call):
        with force_tile(forced):
            judge.check(run_poisoned(call))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 3.4e38])
def test_all_of_a_value(device, value):
    """Nothing but numbers that cannot be split: NaN ends the repair of an output at once."""
    call = make_call(LINEAR, Shape(300, 200, 260, "several tiles"), IEEE, device)
    call.x[:] = value
    call.weight[5] = 0
    judge = Judge(call)
    for forced in ("tf32x3", *list_forced(call)):
        with force_tile(forced):
            judge.check(run_poisoned(call))


@pytest.mark.parametrize("exponents", [(-140, 10), (-126, 20), (-60, -60), (-148, 120), (50, 40)])
def test_every_magnitude_keeps_its_digits(device, exponents):
    """Subnormal numbers, results near the smallest normal one, and large ones."""
    of_x, of_weight = exponents
    call = make_call(LINEAR, Shape(70, 72, 200, "several tiles"), IEEE, device)
    call = call.change(bias=None)
    scale = torch.ones((), device=device, dtype=torch.float64)
    x, weight = (
        (matrix.double() * torch.ldexp(scale, torch.tensor(exponent, device=device))).float()
        for matrix, exponent in ((call.x, of_x), (call.weight, of_weight))
    )
    call = call.change(x=x, weight=weight)
    for forced in list_forced(call):
        with force_tile(forced):
            Judge(call).check(run_poisoned(call))


@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_scales_along_k_and_along_rows(device, majors):
    """Each column of the result is judged alone: what one row or one k of the operands is
    multiplied by, up to 1e24, costs no other a digit."""
    shape = Shape(128, 96, 2048, "a long K")
    call = make_major_call(LINEAR, shape, IEEE, device, majors).change(bias=None)
    generator = torch.Generator(device).manual_seed(1)

    def draw(count):
        return 10.0 ** torch.randint(-12, 13, (count,), device=device, generator=generator).float()

    along_k = draw(shape.k)
    x = call.x * along_k * draw(shape.m)[:, None]
    weight = call.weight / along_k * draw(shape.n)[:, None]
    truth = x.double() @ weight.double().t()

    def find_errors(y):
        relative = (y.double() - truth) / draw_rows
        return relative.norm(dim=0) / (truth / draw_rows).norm(dim=0)

    draw_rows = truth.abs().amax(1, keepdim=True)
    limit = 2 * find_errors(x @ weight.t()).max() + 2.0**-23
    for forced in list_forced(call):
        with force_tile(forced):
            y = torch.ops.cutlass_fused.linear(x, weight)
        assert find_errors(y).max() <= limit, forced


@pytest.mark.parametrize("shape", [(2**21 + 5, 3, 40), (3, 2**21 + 5, 40)], ids=str)
def test_many_tiles_along_one_side(device, shape):
    m, n, k = shape
    x, weight = torch.randn(m, k, device=device), torch.randn(n, k, device=device)
    for tile in list_tf32x3(x, weight):
        with force_tile(tile):
            y = torch.ops.cutlass_fused.linear(x, weight)
        torch.testing.assert_close(y, x @ weight.t(), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("choose_freely")
def test_operands_are_not_copied(device):
    """A small product in any order takes the memory of its result alone."""
    for majors in MAJORS:
        shape = Shape(512, 512, 512, "copies would be as large as the result")
        call = make_major_call(LINEAR, shape, IEEE, device, majors)
        call.run()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = call.run()
        assert torch.cuda.max_memory_allocated() - before == y.numel() * 4


def test_gradients_of_a_small_layer_are_products_as_they_lie():
    code = """
        import torch
        from cutlass_fused import functional
        shapes = ((300, 128), (64, 128), (64,))
        x, w, b = (torch.randn(s, device="cuda", requires_grad=True) for s in shapes)
        functional.linear(x, w, b).square().sum().backward()
        torch.cuda.synchronize()
    """
    _, lines = run_logged(code)
    assert len(lines) == 3 and all("cutlass_fused: tf32x3 fp32 linear" in line for line in lines)


def test_in_a_graph_and_on_another_stream(device):
    call = make_call(LINEAR, SHAPES[3], IEEE, device)
    for forced in list_forced(call):
        with force_tile(forced):
            expected = call.run()
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            with torch.cuda.graph(graph, stream=stream):
                y = call.run()
        y.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, expected)


def test_gradients_are_those_of_eager(device):
    """Of a layer whose three products all lie differently."""
    torch.manual_seed(0)
    for m, n, k in ((257, 65, 130), (64, 512, 64), (2048, 64, 512)):
        operands = [torch.randn(s, device=device) for s in ((m, k), (n, k), (n,))]
        grads = []
        for dtype, function in (
            (torch.float64, torch.nn.functional.linear),
            (torch.float32, torch.nn.functional.linear),
            (torch.float32, functional.linear),
        ):
            own = [operand.to(dtype).requires_grad_() for operand in operands]
            y = function(*own)
            grads.append(torch.autograd.grad(y.square().mean(), own))
        for truth, eager, ours in zip(*grads, strict=True):
            limit = 2 * (eager - truth).abs().max() + truth.abs().max() * 2.0**-23
            assert (ours - truth).abs().max() <= limit


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_kept_parts_of_a_weight_change_no_bit(device, precision):
    linear, split_weight = torch.ops.cutlass_fused.linear, torch.ops.cutlass_fused.split_weight
    for m, n, k in itertools.product((1, 16, 300, 2048), (64, 130, 1024), (64, 520, 2048)):
        x, weight = torch.randn(m, k, device=device), torch.randn(n, k, device=device)
        split = split_weight(weight, precision)
        kept = linear(x, weight, None, precision, None, split)
        assert torch.equal(linear(x, weight, None, precision), kept), (m, n, k)


@torch.no_grad()
def test_a_small_layer_whose_weight_is_gone(device):
    """Its parts are read, which differ by a rounding."""
    call = make_call(LINEAR, Shape(70, 72, 200, "small"), IEEE, device)
    split = torch.ops.cutlass_fused.split_weight(call.weight, "ieee")
    gone = torch.empty((), device=device).expand(call.weight.shape)
    y = torch.ops.cutlass_fused.linear(call.x, gone, call.bias, "ieee", None, split)
    Judge(call).check(y)


@pytest.mark.usefixtures("choose_freely")
def test_autotune_times_them(device):
    ops, call = torch.ops.cutlass_fused, make_call(LINEAR, SHAPES[3], IEEE, device)
    ops.record_products(True)
    call.run()
    (product,) = json.loads(ops.record_products(False))
    own = [tile for tile in product["tiles"] if ".tf32x3@" in tile]
    assert product["choice"] in own and len(own) < len(product["tiles"])
