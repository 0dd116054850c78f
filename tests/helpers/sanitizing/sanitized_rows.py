"""Calls that launch every kernel behind a product, or without one: statistics and rows."""

import torch
from calls import (
    NORM_SOFTMAX,
    NORM_SOFTMAX_TRAIN,
    NORM_TRAIN,
    PRODUCT_OPS,
    SCALE_NORM_TRAIN,
    SOFTMAX,
    SOFTMAX_OPS,
    TRAIN_OPS,
)
from cases import BF16, FP16, Shape
from cases_far_means import make_far_call
from cases_statistics import make_statistics_call
from judge_tiles import list_statistics_tiles
from layouts import offset_storage
from sanitized_products import LAYOUTS, TILED
from tiles import force_tile

# The kernels of the softmax, each in front of and behind a bound, with aligned and unaligned rows:
# few, more and many elements to a thread, one warp and many, and rows that are read twice, from
# shared memory alone and from global memory too, or that clusters stream, up to the largest.
WIDTHS = (1, 40, 33, 256, 264, 259, 1000, 1001, 1032, 1027, 8200, 8201, 16392, 16389, 65544, 65543)
# Longer than any cluster holds, aligned and behind such: GPUs of 9.0 read these in other blocks.
WIDTHS += (2**20 + 8, 2**20 + 3)
# Streamed rows, so many that each cluster has several.
MANY_WIDE = (
    Shape(300, 32000, 0, "aligned"),
    Shape(300, 16387, 0, "at every distance from 16 bytes"),
)
# Rows with a normalization in front of the softmax: one kernel, also the widest, and two; from fp32
# to 16 bits the second has variants of its own.
WIDTHS_BEHIND_NORM = (2048, 2047, 2052, 2049, 8192, 8200, 8201, 16392, 16389, 65544)
# Shapes for the statistics: ragged ranges of rows and blocks of columns, and more of them than one.
MATRICES = (
    Shape(2, 264, 24, "two rows"),
    Shape(37, 77, 51, "odd"),
    Shape(300, 520, 64, "several ranges and blocks"),
    Shape(1100, 3, 16, "many ranges"),
    Shape(600, 136, 40, "a product whose last tile has no row of the batch"),
    Shape(70, 8200, 40, "an fp32 product that finds statistics, and repairs and merges at once"),
    Shape(40, 1, 64, "one column"),
    Shape(0, 72, 64, "empty batch"),
    Shape(40, 0, 64, "no columns"),
)
# Rows that a batch norm keeps in shared memory, in groups of columns of each width.
ON_CHIP = (
    Shape(1100, 1032, 0, "ragged"),
    Shape(4100, 72, 0, "few columns"),
    Shape(300, 4104, 0, "few rows"),
)


def run_statistics(call):
    """Everything that the op writes, close to float64: the accuracy is for other tests to judge."""
    results = call.run_all()
    torch.cuda.synchronize()
    truth = call.map_tensors(torch.Tensor.cpu).flatten().in_float64().refer_all()
    coarse = call.x.dtype.itemsize == 2 or call.precision == "tf32"
    rtol, atol = (0.25, 0.05) if coarse else (1e-3, 1e-4)
    if call.op in SOFTMAX_OPS:
        atol = 1e-5
    for name, result in results.items():
        exact = truth[name].double()
        found = result.cpu().double().reshape(exact.shape)
        limit = {"rtol": rtol, "atol": atol if name == "y" else max(atol, 0.05 * coarse)}
        torch.testing.assert_close(found, exact, **limit, msg=lambda m, n=name: f"{n}: {m}")
    return 1


def run_statistics_sm80(op, numerics):
    """Every tile for 8.0 that finds statistics, where others would serve."""
    launches = 0
    for shape in (MATRICES[2], MATRICES[4]):
        call = make_statistics_call(op, shape, numerics, "cuda")
        for tile in list_statistics_tiles(call):
            with force_tile(tile):
                launches += run_statistics(call) + run_statistics(call.change(keep_z=False))
    return launches


def list_statistics_calls(op, numerics):
    """Calls that reach every kernel behind the product, or without one, for these dtypes."""

    def make(*arguments, **kinds):
        return make_statistics_call(op, *arguments, numerics, "cuda", **kinds)

    if op == SOFTMAX:
        for width in WIDTHS:
            yield make(Shape(5 if width < 2**20 else 2, width, 0, "one width"))
        for width in (16392, 16389):  # rows that lie at other distances from 16 bytes than y's
            call = make(Shape(5, width, 0, "no cluster streams it"))
            yield call.change(x=offset_storage(call.x))
        for shape in MANY_WIDE:
            yield make(shape)
    for shape in MATRICES + (ON_CHIP if op == NORM_TRAIN else ()):
        yield make(shape)
        if op in TRAIN_OPS and op in PRODUCT_OPS:
            yield make(shape).change(keep_z=False)
            if numerics.dtype == torch.float32 and shape.m > 3 and shape.n > 0:
                call = make(shape)  # with a row that the kernel which merges repairs
                call.x[3, 0] = 1e30
                call.weight[:, 0] = 0
                yield call
    if op in (NORM_SOFTMAX_TRAIN, NORM_SOFTMAX):
        for width in WIDTHS_BEHIND_NORM:
            for scale in ("one", "own"):
                call = make(Shape(9, width, 16, "wide"), scale=scale)
                yield call
                if op in TRAIN_OPS:
                    yield call.change(keep_z=False)
    if op in TRAIN_OPS and op in PRODUCT_OPS and numerics in (BF16, FP16):
        # Tiles that store z less shifts of their own, which a merge makes one.
        far = make_far_call(op, Shape(5000, 264, 40, "far"), numerics, 1e4, 1.0, "x", "cuda", 1e-2)
        yield far.change(keep_z=False)
    kinds = {"bias": "offset", "scale": "strided", "vectors": "strided", "statistics": "strided"}
    if op == SCALE_NORM_TRAIN and numerics == BF16:
        yield make(Shape(16129, 2040, 64, "in strips, while the product runs")).change(keep_z=False)
    call = make(TILED[0], **kinds)
    for layout in LAYOUTS if op not in PRODUCT_OPS else ():
        yield call.change(x=layout(call.x))
    yield call
    if op in TRAIN_OPS:
        yield call.change(momentum=None, running_mean=None)
        yield call.change(num_batches_tracked=None, gamma=None, beta=None)
