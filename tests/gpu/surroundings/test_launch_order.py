"""Kernels are launched while the one before them ends, and wait for it: what it writes is read, and
what it reads is written, as if each had been waited for."""

import itertools

import pytest
import torch
from calls import BATCH_NORM, LEAKY
from cases import BF16, IEEE, Shape, make_call
from tiles import force_tile, list_cublas, list_sm80_tiles, list_sm90_tiles, list_tiles

from cutlass_fused import epilogue

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
# Square, so that a result is the next x. Few blocks, which end together, and more than fit at once.
SHAPES = (Shape(96, 264, 264, "small"), Shape(1030, 1032, 1032, "several waves"))
LINKS = 6


def run_chain(x, weight, wait):
    """Each link reads what the last one wrote, in memory that the one before it has just read."""
    for _ in range(LINKS):
        x = ops.linear_scale_leaky_relu(x, weight, None, None, 1.5, 0.5, "ieee", None)
        if wait:
            torch.cuda.synchronize()
    return x


def check_chain(run):
    """Bits are the same, waiting or not, and in a graph."""
    expected = run(True)
    for _ in range(10):
        assert torch.equal(run(False), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run(False)
    for _ in range(5):
        result.fill_(torch.nan)
        graph.replay()
        assert torch.equal(result, expected)


COPY = "program 1\noperands 0\nreturn acc\n"
LINES = "v0 = mul acc 0x1.8p+0", "v1 = mul p0 0x1.0p-12", "v2 = sub v0 v1", "return v2\n"
LESS = "\n".join(["program 1", "operands 1", *LINES])


@epilogue
def normalized(acc, skipped):
    return torch.nn.functional.layer_norm(acc + skipped, acc.shape[1:])


@pytest.mark.parametrize("shape", [(64, 512), (4096, 4096)], ids=str)
def test_program_behind_program(device, shape):
    """Elements, and sums over the rows that the next one reads."""

    def run(wait):
        y = x
        for _ in range(LINKS):
            (total,) = ops.apply_program(y, [], COPY, "sum:float32")
            if wait:
                torch.cuda.synchronize()
            (y,) = ops.apply_program(y, [total], LESS, "float32")
            if wait:
                torch.cuda.synchronize()
        return y

    x = torch.randn(shape, device=device)
    check_chain(run)


@pytest.mark.parametrize("shape", [(64, 512), (4096, 1024)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_behind_a_product(device, dtype, shape):
    """The product that a kernel of rows reads is made by the kernel before it."""

    def run(wait):
        y = x
        for _ in range(LINKS):
            y = normalized(y, weight, skipped=y)
            if wait:
                torch.cuda.synchronize()
        return y

    x = torch.randn(shape, device=device, dtype=dtype)
    weight = torch.randn(shape[1], shape[1], device=device, dtype=dtype) / shape[1] ** 0.5
    check_chain(run)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
def test_product_behind_product(device, numerics, shape):
    call = make_call(LEAKY, shape, numerics, device)
    for tile in list_tiles(call):
        with force_tile(tile):
            check_chain(lambda wait: run_chain(call.x, call.weight, wait))


def test_vectors_behind_a_product(device):
    """A warp that has nothing but vectors to read starts while the kernel before still computes:
    there are idle SMs, and that kernel allows it once it has asked for its last operands."""
    n = 4096
    few = make_call(LEAKY, Shape(16, n, n, "64 blocks of one slice"), BF16, device)
    call = make_call(BATCH_NORM, Shape(264, n, 264, "few blocks"), BF16, device)
    weight = few.weight / n**0.5
    var = torch.full((n,), float(call.k), device=device, dtype=call.x.dtype)
    splits, cooperative = (
        [tile for tile in list_sm90_tiles(call) if word in tile]
        for word in ("64x16x512B", ".cooperative")
    )
    if not splits:
        pytest.skip("kernels of compute capability 9.0 alone")

    def run(tile, wait):
        y = few.x
        for _ in range(LINKS):
            with force_tile(splits[0] + "@k1"):
                rows = ops.linear(y[:16], weight, None, "ieee", None)
            if wait:
                torch.cuda.synchronize()
            with force_tile(tile):
                y = ops.linear_scale_batch_norm_inference(
                    call.x, call.weight, rows[0], None, rows[1], var, rows[2], rows[3]
                )
        return y

    for tile in cooperative:
        assert run(tile, wait=True).isfinite().all()
        check_chain(lambda wait, tile=tile: run(tile, wait))


def test_product_on_cuda_cores_behind_product(device):
    call = make_call(LEAKY, Shape(600, 24, 24, "K is not split"), IEEE, device)
    check_chain(lambda wait: run_chain(call.x, call.weight, wait))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product_behind_a_repair(device, shape):
    """Column 2 of each result is column 1 of the one before, of which the split has nothing."""
    call = make_call(LEAKY, shape, IEEE, device)
    call.x[:, 1] *= 1e-30
    call.weight[1] *= 1e-30
    call.weight[2] = 0
    call.weight[2, 1] = 1e30
    result = run_chain(call.x, call.weight, wait=True)
    assert (result[:, 2] != 0).all()
    check_chain(lambda wait: run_chain(call.x, call.weight, wait))


@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
# No cluster holds them: aligned rows, and rows at every distance from a boundary of 16 bytes.
@pytest.mark.parametrize("shape", [(20000, 1032), (9000, 1001)])
def test_batch_norm_behind_batch_norm(device, numerics, shape):
    """Rows are read while their statistics are merged, and not before they have been written."""
    start = torch.randn(shape, device=device, dtype=numerics.dtype)
    gamma, beta = torch.randn(2, shape[1], device=device)

    def run(wait):
        y = start
        for _ in range(LINKS):
            y = ops.batch_norm_train(y + 1, None, None, None, gamma, beta, 0.1, 1e-5)[0]
            if wait:
                torch.cuda.synchronize()
        return y

    check_chain(run)


@pytest.mark.parametrize("shape", [*SHAPES, Shape(1000, 520, 520, "in groups")], ids=str)
@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
def test_products_with_statistics_in_turn(device, numerics, shape):
    """Split rows: product, repair and merge in one kernel, and what reads rows meanwhile. In 16
    bits: blocks that wait for each other, behind those of another product that do."""
    call = make_call(LEAKY, shape, numerics, device)

    def run(wait):
        y = call.x
        nothing = (None,) * 6
        for _ in range(LINKS // 2):
            for op in (
                ops.linear_scale_batch_norm_train,
                ops.linear_batch_norm_scale_softmax_train,
            ):
                y = op(y, call.weight, *nothing, None, 0.1, 1e-5, "ieee", None, False, None)[0]
                if wait:
                    torch.cuda.synchronize()
        return y

    check_chain(run)


@pytest.mark.parametrize(
    ("rows", "width"),
    [
        *itertools.product((96, 4300), (128, 500, 512, 1000)),
        *((300, 1032), (300, 8200), (20, 20000), (300, 20000), (5, 65539)),
    ],
)
@pytest.mark.parametrize("numerics", [BF16, IEEE], ids=str)
def test_softmax_behind_a_product(device, numerics, rows, width):
    """Rows in registers, and those that clusters stream; 4300 short ones of fp32 go two to a warp,
    or are more than fit."""
    k = min(width, 264)
    call = make_call(LEAKY, Shape(rows, width, k, "logits"), numerics, device)
    weight = 8 * call.weight  # rows of softmax keep differing from one link to the next

    def run(wait):
        y = call.x
        for _ in range(LINKS // 2):
            y = ops.linear(y[:, :k], weight, None, "ieee", None)
            if wait:
                torch.cuda.synchronize()
            y = ops.softmax(y)
            if wait:
                torch.cuda.synchronize()
        return y

    logits = torch.empty(rows, width, dtype=call.x.dtype, device=device)
    for tile in ("", *list_tiles(call.change(x=logits[:, :k]))):
        with force_tile(tile):
            check_chain(run)


@pytest.mark.parametrize("k", [264, 261])
def test_kernels_of_all_kinds_in_turn(device, k):
    """Products by SM90 and SM80 kernels and by cuBLAS, copies of rows, statistics, softmax."""
    call = make_call(LEAKY, Shape(600, k, k, "square"), BF16, device)
    tiles = ("", list_sm80_tiles(call)[0], *list_cublas(call), *list_sm90_tiles(call)[-1:])

    def run(wait):
        y = call.x
        for tile in tiles:
            with force_tile(tile):
                y = ops.linear(y, call.weight, None, "ieee", None)
            y = ops.softmax(y, None)
            y = ops.linear(y, call.weight, call.bias, "ieee", None)
            y = ops.batch_norm_train(y, None, None, None, None, None, 0.1, 1e-5)[0]
            if wait:
                torch.cuda.synchronize()
        return y

    check_chain(run)
