"""Products of 16-bit matrices that lie along K, M or N: nothing is copied where cuBLAS reads them
as they lie, and sums are of fp32, rounded once."""

import itertools
import threading

import pytest
import torch
from accuracy import Judge
from blas_handle import Handle
from calls import BATCH_NORM, LEAKY, LINEAR
from cases import BF16, BF16_FP32, FP16, FP16_FP32, Shape, make_call, make_special_call
from check_call import check_call, check_nothing_else_is_written, run_poisoned
from layouts import (
    MAJORS,
    cut_block,
    lay,
    misalign_rows,
    name_majors,
    offset_storage,
    repeat_first_column,
    repeat_first_row,
    skip_columns,
    transpose,
    widen_rows,
)
from tiles import force_tile

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("choose_freely")]

NUMERICS = (BF16, FP16, BF16_FP32, FP16_FP32)
ALONG_MN = [majors for majors in MAJORS if any(majors)]
SHAPES = (
    Shape(1, 1, 1, "one number"),
    Shape(1, 264, 256, "one row"),
    Shape(40, 1, 64, "one column"),
    Shape(40, 72, 1, "K = 1"),
    Shape(40, 72, 0, "K = 0: an empty sum"),
    Shape(0, 72, 64, "no row"),
    Shape(37, 77, 51, "odd sizes: no line but the first is aligned"),
    Shape(133, 264, 96, "ragged: the sums of a tail are more bytes than copies"),
    Shape(48, 80, 4096, "a long K, which cuBLAS splits: copies are more bytes than those sums"),
    Shape(520, 514, 1030, "many tiles, in lines of whole 4 bytes"),
)
MIXED = Shape(70, 134, 66, "lines of whole 4 bytes")
TAILS = {
    "bare": {"op": LINEAR, "bias": "none"},
    "bias": {"op": LINEAR},
    "leaky": {"op": LEAKY},
    "norm": {"op": BATCH_NORM},
}
each_layout = pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
each_numerics = pytest.mark.parametrize("numerics", NUMERICS, ids=str)
each_tail = pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)


def build(tail, shape, numerics, device, majors=(False, False)):
    tail = dict(tail)
    return lay(make_call(tail.pop("op"), shape, numerics, device, **tail), majors)


def place(layout, matrix, along_mn):
    """In this layout, of its columns if it lies along M or N."""
    return layout(matrix.t().contiguous()).t() if along_mn else layout(matrix)


# ---- results ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@each_numerics
@each_layout
@each_tail
def test_every_layout(device, tail, majors, numerics, shape):
    """In memory that held NaN; the same bits again."""
    call = build(tail, shape, numerics, device, majors)
    check_call(call)
    assert torch.equal(call.run(), call.run())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@each_numerics
@each_layout
@pytest.mark.parametrize("tail", [TAILS["bare"], TAILS["leaky"]], ids=["bare", "leaky"])
def test_cublas_is_forced(device, tail, majors, numerics, shape):
    """Of every layout and tail; into y itself, or in front of an epilogue."""
    if shape.k == 0 or shape.m == 0:
        pytest.skip("no product")
    call = build(tail, shape, numerics, device, majors)
    with force_tile("cublas"):
        Judge(call).check(run_poisoned(call))
        assert torch.equal(call.run(), call.run())


@pytest.mark.parametrize(
    "layout", [widen_rows, misalign_rows, offset_storage, cut_block], ids=lambda f: f.__name__
)
@each_numerics
@each_layout
@pytest.mark.parametrize("tail", [TAILS["bare"], TAILS["bias"]], ids=["bare", "bias"])
def test_strided_lines(device, tail, majors, numerics, layout):
    """Views among NaN, which begin anywhere."""
    call = build(tail, MIXED, numerics, device)
    x, weight = (
        place(layout, matrix, along_mn)
        for matrix, along_mn in zip((call.x, call.weight), majors, strict=True)
    )
    call = call.change(x=x, weight=weight)
    check_call(call)
    check_nothing_else_is_written(call)


@pytest.mark.parametrize(
    "layout", [repeat_first_row, repeat_first_column, skip_columns], ids=lambda f: f.__name__
)
@each_layout
@pytest.mark.parametrize("tail", [TAILS["bare"], TAILS["bias"]], ids=["bare", "bias"])
def test_lines_that_repeat(device, tail, majors, layout):
    """Strides of 0 and 2, of x, beside a weight of any layout."""
    for numerics in (BF16, FP16):
        call = build(tail, MIXED, numerics, device, (False, majors[1]))
        check_call(call.change(x=place(layout, call.x, majors[0])))


@each_layout
def test_lines_that_overlap(device, majors):
    """Each begins three elements behind the one before."""
    m, n, k = 20, 24, 40
    for dtype in (torch.bfloat16, torch.float16):
        line = torch.randn(500, device=device).to(dtype)
        call = make_call(LINEAR, Shape(m, n, k, "any"), BF16, device, bias="none")
        call = call.change(
            x=line.as_strided((m, k), (1, 3) if majors[0] else (3, 1)),
            weight=line.as_strided((n, k), (1, 3) if majors[1] else (3, 1), 100),
        )
        check_call(call)


@each_numerics
@each_layout
def test_special_values(device, majors, numerics):
    for op, bias in itertools.product((LINEAR, LEAKY), (True, False)):
        call = lay(make_special_call(op, numerics, device), majors)
        call = call if bias else call.change(bias=None)
        Judge(call).check(run_poisoned(call))


@pytest.mark.parametrize("majors", ALONG_MN, ids=name_majors)
@each_numerics
def test_parts_of_a_sum_are_of_fp32(device, numerics, majors):
    """Whatever PyTorch lets its own products do: the gradient of a small layer's weight, whose K
    cuBLAS cuts into parts. Numbers of one sign have nothing that cancels."""
    shape = Shape(64, 80, 16384, "few outputs of a long sum")
    call = make_call(LINEAR, shape, numerics, device, bias="none", distribution="positive")
    call = lay(call, majors)
    settings, results = torch.backends.cuda.matmul, []
    names = [f"allow_{t}_reduced_precision_reduction" for t in ("fp16", "bf16")]
    before = [getattr(settings, name) for name in names]
    try:
        for allowed in (True, False):
            for name in names:
                setattr(settings, name, allowed)
            results.append(call.run())
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(settings, name, value)
    assert torch.equal(*results)
    Judge(call).check(results[0])


# ---- memory ----


def measure_memory(call):
    """Bytes that a call takes beside what is there."""
    call.run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = call.run()
    return torch.cuda.max_memory_allocated() - before - y.numel() * y.itemsize


# Whole blocks of the allocator. The operands are larger than the sums.
WHOLE = Shape(512, 256, 2048, "a long K")


@pytest.mark.parametrize("majors", ALONG_MN, ids=name_majors)
@each_numerics
def test_a_bare_product_takes_no_memory(device, numerics, majors):
    assert measure_memory(build(TAILS["bare"], WHOLE, numerics, device, majors)) == 0


@pytest.mark.parametrize("majors", ALONG_MN, ids=name_majors)
@each_numerics
def test_a_tail_takes_a_scratch_of_the_sums_alone(device, numerics, majors):
    """None where y is of fp32: the epilogue works in its place."""
    call = build(TAILS["leaky"], WHOLE, numerics, device, majors)
    scratch = 0 if call.result_dtype == torch.float32 else 4 * WHOLE.m * WHOLE.n
    assert measure_memory(call) == scratch


# ---- surroundings ----


@each_layout
@each_tail
def test_in_a_graph(device, tail, majors):
    for numerics in NUMERICS:
        call = build(tail, SHAPES[-2], numerics, device, majors)
        expected = call.run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call.run()
        for _ in range(2):
            y.fill_(torch.nan)
            graph.replay()
            assert torch.equal(y, expected)


@each_tail
def test_on_another_stream(device, tail):
    call = build(tail, Shape(512, 512, 2048, "any"), BF16, device, (True, True))
    judge = Judge(call)
    late = call.change(x=transpose(torch.full_like(call.x, torch.nan)))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.x.copy_(call.x)
        result = late.run()
        late.x.fill_(torch.nan)
    stream.synchronize()
    judge.check(result)


@each_tail
def test_in_a_fresh_thread(device, tail):
    """Which has no handle yet."""
    call, results = build(tail, SHAPES[-2], FP16, device, (True, False)), []
    thread = threading.Thread(target=lambda: results.append(call.run()))
    thread.start()
    thread.join()
    Judge(call).check(results[0])


@pytest.mark.parametrize("allowed", [True, False])
def test_modes_of_the_handle_are_as_before(device, allowed):
    settings = torch.backends.cuda.matmul
    before = settings.allow_bf16_reduced_precision_reduction
    settings.allow_bf16_reduced_precision_reduction = allowed
    try:
        handle = Handle()
        math = handle.get("MathMode")
        for pointers in (0, 1):
            handle.set("PointerMode_v2", pointers)
            try:
                for tail in TAILS.values():
                    build(tail, SHAPES[-2], BF16, device, (True, True)).run()
                    assert handle.get("PointerMode_v2") == pointers
            finally:
                handle.set("PointerMode_v2", 0)
            assert handle.get("MathMode") == math
    finally:
        settings.allow_bf16_reduced_precision_reduction = before
