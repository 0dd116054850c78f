"""softmax: every width class of the kernels, layouts, special and extreme values, repetitions."""

import pytest
import torch
from calls import SOFTMAX
from cases import BF16, BF16_FP32, FP16, FP16_FP32, IEEE, Shape
from cases_statistics import LAYOUT_SHAPE, make_statistics_call
from judge_call import assert_same_bits, judge_call
from layouts import (
    MATRIX_LAYOUTS,
    RANK_LAYOUTS,
    cut_block,
    misalign_rows,
    offset_storage,
    widen_rows,
)

from cutlass_fused.functional import softmax

pytestmark = pytest.mark.gpu

NUMERICS = (IEEE, FP16, BF16, FP16_FP32, BF16_FP32)
# Beside each bound of a kernel (256: one warp with few elements; 512; 1024; 8192; 16384: what
# registers hold; 24576 and more: what shared memory holds), and on both sides of alignment.
WIDTHS = (1, 7, 32, 33, 256, 257, 512, 513, 1024, 1025, 2048, 4096, 8192, 8193, 16384, 16385)
WIDE = (32768, 65536 + 3, 131072, 262144)
# One of each kernel: with few, more and many elements to a thread, one warp and many, and wide.
KERNEL_WIDTHS = (40, 256, 264, 512, 1016, 1024, 1032, 8200, 20480, 65536)
# Rows that clusters of blocks stream, on a GPU of 9.0. How many blocks share one depends on both
# numbers: what is said of that is so on an H200.
STREAMED = (
    Shape(1500, 16385, 0, "a block to a row, many times around its ring; at every alignment"),
    Shape(300, 16385, 0, "two blocks to a row"),
    Shape(1, 20000, 0, "one row: nothing to run ahead to"),
    Shape(3, 32000, 0, "fewer rows than clusters"),
    Shape(131, 32000, 0, "two blocks to a row, a few times around their rings"),
    Shape(400, 50257, 0, "two blocks to a row, many times around their rings; odd"),
    Shape(131, 65536, 0, "a power of two"),
    Shape(300, 131072, 0, "four blocks to a row, many times around their rings"),
    Shape(131, 262152, 0, "eight blocks to a row; two do not fit into the rings in fp32"),
    Shape(3, 442001, 0, "nearly as wide as what eight blocks hold in fp32"),
    Shape(3, 500003, 0, "too wide for that, and for four blocks in 16 bits"),
)
streamed = pytest.mark.parametrize("shape", STREAMED, ids=str)


def make_softmax_call(rows, width, numerics, device, spread=1.0):
    """Logits of a deviation of about 5 * spread."""
    call = make_statistics_call(SOFTMAX, Shape(rows, width, 0, "softmax"), numerics, device)
    return call.change(x=call.x * spread)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_widths(device, numerics, width):
    """More rows than the blocks that are resident at once, so that blocks go on to a second row."""
    rows = min(6401, 2**22 // width + 1)
    spread = 1.0 if width <= 2048 else 0.2
    judge_call(make_softmax_call(rows, width, numerics, device, spread))


@pytest.mark.parametrize("width", WIDE)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_wide(device, numerics, width):
    """Logits close together: else fp16 holds little but zeros, and no row adds up to 1."""
    judge_call(make_softmax_call(5, width, numerics, device, spread=0.2))


@pytest.mark.parametrize("width", [16392, 16389])
@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
def test_wide_with_many_rows(device, numerics, width):
    judge_call(make_softmax_call(300, width, numerics, device, spread=0.2))


@streamed
@pytest.mark.parametrize("numerics", [IEEE, FP16, BF16], ids=str)
def test_streamed_rows(device, numerics, shape):
    judge_call(make_softmax_call(shape.m, shape.n, numerics, device, spread=0.2))


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS + RANK_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("numerics", [IEEE, BF16, FP16_FP32], ids=str)
def test_layouts(device, numerics, layout):
    call = make_statistics_call(SOFTMAX, LAYOUT_SHAPE, numerics, device)
    judge_call(call.change(x=layout(call.x)))


@pytest.mark.parametrize("layout", [cut_block, offset_storage, widen_rows])
@pytest.mark.parametrize("width", KERNEL_WIDTHS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_layouts_of_every_kernel(device, numerics, width, layout):
    """Widths of whole accesses, so that the layout alone decides; NaN lies between the rows."""
    call = make_softmax_call(9, width, numerics, device, spread=0.2)
    judge_call(call.change(x=layout(call.x)))


@pytest.mark.parametrize("layout", [widen_rows, misalign_rows])
@pytest.mark.parametrize("width", [16385, 20484, 65539])
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_wide_rows_of_any_alignment(device, numerics, width, layout):
    """x and y: rows as far behind a boundary of 16 bytes as each other, and not as far."""
    call = make_softmax_call(9, width, numerics, device, spread=0.2)
    judge_call(call.change(x=layout(call.x)))


@pytest.mark.parametrize("width", [16385, 20000, 65539])
@pytest.mark.parametrize("numerics", [IEEE, FP16, BF16], ids=str)
def test_wide_rows_among_nan(device, numerics, width):
    """Distances between rows that keep those of x as far behind 16 bytes as those of y."""
    call = make_softmax_call(300, width, numerics, device, spread=0.2)
    judge_call(call.change(x=widen_rows(call.x)))


# ---- values ----


def spoil_rows(x):
    """NaN and infinities at the ends and in the middle of rows; row 9 stays, and in 16 bits 10 and
    11."""
    width = x.shape[1]
    x[0, -1] = torch.nan
    x[1, width // 2] = torch.inf
    x[2, 0] = -torch.inf
    x[3, 0], x[3, -1] = torch.inf, -torch.inf
    x[4] = -torch.inf
    x[5, :-1] = -torch.inf
    x[6] = -torch.inf
    x[6, width // 2] = torch.nan
    x[7] = torch.inf
    x[8] = -2.5  # all equal
    if x.dtype == torch.float32:  # NaN with a sign: the smallest number, where bits are compared
        bits = x.view(torch.int32)
        bits[0, -1] = bits[10] = -0x400000
        bits[11, 0] = -0x400000
    return x


@pytest.mark.parametrize("width", [3, 33, *KERNEL_WIDTHS, 513, 1025, 8193, 16385, 65539, 131079])
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_special_rows(device, numerics, width):
    """They are eager's, in every kernel; the rows beside them stay as accurate as ever."""
    call = make_softmax_call(12, width, numerics, device, spread=0.2)
    spoil_rows(call.x)
    y = judge_call(call)["y"]
    for row in (0, 1, 3, 4, 6, 7, *((10, 11) if numerics is IEEE else ())):
        assert y[row].isnan().all(), row
    assert y[2, 0] == 0 and y[2].isfinite().all()
    assert y[5, -1] == 1 and not y[5, :-1].any()
    assert (y[8] == y[8, 0]).all() and y[9].isfinite().all()
    assert numerics is IEEE or y[10:].isfinite().all()


@pytest.mark.parametrize("width", KERNEL_WIDTHS)
@pytest.mark.parametrize("numerics", [IEEE, FP16, BF16], ids=str)
def test_huge_numbers(device, numerics, width):
    """Differences that overflow under the exponential: the largest share the row between them."""
    huge = 6e4 if numerics is FP16 else 1e30
    signs = torch.where(torch.arange(width, device=device) % 8 == 3, 1.0, -1.0)
    call = make_softmax_call(4, width, numerics, device)
    call = call.change(
        x=(torch.stack([signs, -signs, signs * 0 - 1, signs]) * huge).to(call.x.dtype)
    )
    call.x[3, -1] = 0.0
    assert torch.equal(call.run(), torch.softmax(call.x, -1))


@pytest.mark.parametrize("width", [*KERNEL_WIDTHS, 16385, 65539])
@pytest.mark.parametrize("numerics", [IEEE, FP16, BF16], ids=str)
def test_rows_masked_by_the_smallest_number(device, numerics, width):
    """Attention masks use it; masked as a whole, rows are those of equal elements."""
    call = make_softmax_call(6, width, numerics, device)
    call.x[::2] = 0.0
    call.x[0, width // 2 :] = call.x[1] = torch.finfo(call.x.dtype).min
    call.x[2, : width // 2] = call.x[3, 1:] = torch.finfo(call.x.dtype).min
    call.x[4], call.x[5] = torch.finfo(call.x.dtype).max, 1.0
    assert torch.equal(call.run(), torch.softmax(call.x, -1))


@pytest.mark.parametrize("offset", [100.0, -1e4, 1e30, -1e30])
@pytest.mark.parametrize("width", [136, 1032, 20480, 65539, 500003])
@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
def test_offsets_of_rows(device, numerics, width, offset):
    """A constant drops out, however large: the maximum is subtracted first."""
    call = make_softmax_call(9, width, numerics, device)
    judge_call(call.change(x=call.x + offset))


@pytest.mark.parametrize("spread", [0.0, 1e-3, 10.0, 1e3])
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_spreads(device, numerics, spread):
    """From equal elements to rows of which one element takes all."""
    for width in (136, 1032, 20480):
        if numerics is FP16 and width > 10000 and spread == 10.0:
            continue  # fp16 holds little but zeros, in eager too
        judge_call(make_softmax_call(9, width, numerics, device, spread))


@pytest.mark.parametrize("width", [1000, 1024, 2048, 8192, 16384])
def test_sums_of_nearly_equal_halves(device, width):
    """Sums of a warp around 512 and more, whose pairs all leave the same bits behind: rows must
    still add up to 1 within one eps, which a sum rounded to fp32 once misses."""
    counts = torch.arange(512, device=device)[:, None]
    column = torch.arange(width, device=device) % 1024
    x = torch.where((column % 2 == 0) | (column < 2 * counts), 0.0, -16.6356)
    x[:, -1] = -10.397208
    call = make_softmax_call(512, width, IEEE, device)
    judge_call(call.change(x=x))


@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
@pytest.mark.parametrize("width", KERNEL_WIDTHS)
def test_rows_do_not_depend_on_their_batch(device, numerics, width):
    """The batches are so small that as many blocks share a wide row: their number moves its sum."""
    call = make_softmax_call(12, width, numerics, device)
    whole, part = call.run(), call.take_rows(slice(5, 12)).run()
    assert torch.equal(whole[5:], part)


@pytest.mark.parametrize("layout", [widen_rows, misalign_rows, torch.Tensor.contiguous])
@pytest.mark.parametrize("rows", [8000, 8001])
@pytest.mark.parametrize("width", [260, 500, 512, 1000])
def test_many_short_rows(device, width, rows, layout):
    """Beyond a wave of blocks. Where both their number and their width allow it (8000 of up to 512
    columns), fp32 rows go two to a warp, with the bits that they have alone."""
    call = make_softmax_call(rows, width, IEEE, device)
    spoil_rows(call.x)
    call = call.change(x=layout(call.x))
    y = judge_call(call)["y"]
    for part in (slice(0, 12), slice(4001, 4010), slice(rows - 9, rows)):
        assert_same_bits(call.take_rows(part).run_all(), {"y": y[part]})


# ---- repetitions ----


@streamed
@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
def test_two_runs_give_the_same_bits(device, numerics, shape):
    call = make_softmax_call(shape.m, shape.n, numerics, device)
    if shape.m > 9:
        spoil_rows(call.x)
    first = call.run_all()
    for _ in range(3):
        assert_same_bits(call.run_all(), first)


@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
def test_wide_rows_in_a_graph(device, numerics):
    call = make_softmax_call(300, 50257, numerics, device)
    call.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call.run()
    for _ in range(2):
        call.x.copy_(call.x.roll(1, 0))
        graph.replay()
        assert torch.equal(captured, call.run())


# ---- limits ----


def test_rows_beyond_the_limit(device):
    """Refused before anything is allocated; the row itself is one element, seen many times."""
    x = torch.zeros(1, dtype=torch.float16, device=device).expand(2, 2**30 + 1)
    message = r"softmax: a row must have at most 2\^30 elements, got 1073741825"
    with pytest.raises(RuntimeError, match=message):
        torch.ops.cutlass_fused.softmax(x)


@pytest.mark.parametrize("lay", [torch.clone, misalign_rows], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("shape", [(13, 16825), (13, 16828), (3, 500003)], ids=str)
def test_largest_results_of_long_rows(device, shape, lay):
    """By the rule of all tests, and so of the largest results: a thread subtracts what it has seen
    of a row, of which larger numbers come later. Of 24 draws together, as one has few large results
    and a rounding in eager's may be small by luck. Random calls found it, in the gradient."""
    worst, eager = [0.0, 0.0], [0.0, 0.0]
    for seed in range(24):
        generator = torch.Generator(device).manual_seed(seed)
        x, grad = (torch.randn(shape, generator=generator, device=device) for _ in range(2))
        found = [
            run_forward_and_backward(function, lay(given), lay(grad.to(given)))
            for function, given in (
                (softmax, x),
                (lambda x: x.softmax(1), x),
                (lambda x: x.softmax(1), x.double()),
            )
        ]
        for i, (ours, theirs, truth) in enumerate(zip(*found, strict=True)):
            ulp = torch.finfo(x.dtype).eps * 2.0 ** truth.abs().log2().floor()
            worst[i] = max(worst[i], ((ours - truth).abs() - ulp).max().item())
            eager[i] = max(eager[i], (theirs - truth).abs().max().item())
    assert all(w <= 2 * e for w, e in zip(worst, eager, strict=True)), (worst, eager)


def run_forward_and_backward(function, x, grad):
    x.requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y, x, grad)[0]
