"""The fused ops with a batch norm in training or a softmax: shapes, dtypes, vectors, keep_z."""

import pytest
import torch
from calls import NORM_SOFTMAX, NORM_SOFTMAX_TRAIN, SCALE_NORM_TRAIN
from cases import (
    BF16,
    BF16_FP32,
    FP16,
    FP16_FP32,
    IEEE,
    LAYOUT_SHAPE,
    NUMERICS,
    ONE_OUTPUT,
    TF32,
    Shape,
)
from cases_statistics import SHAPES, make_special_statistics_call, make_statistics_call
from check_call import check_call
from judge_call import assert_same_bits, judge_call
from layouts import (
    MATRIX_LAYOUTS,
    SCALE_KINDS,
    VECTOR_KINDS,
    cut_block,
    misalign_rows,
    transpose,
    widen_rows,
)

pytestmark = pytest.mark.gpu

OPS = (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_SOFTMAX)
TRAIN = (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN)
RAGGED = (
    Shape(2, 129, 51, "the smallest batch, nothing aligned"),
    Shape(2, 264, 1032, "the smallest batch, a long K"),
    Shape(37, 129, 72, "odd N behind an aligned K"),
    Shape(37, 264, 51, "odd K in front of an aligned N"),
    Shape(133, 129, 1032, "two tiles of rows, the last ragged"),
    Shape(133, 264, 8, "K below any stage"),
)
# What decides how the softmax runs: up to 2048 columns one kernel holds the row beside what the
# columns need, to 8192 if rows are aligned, and beyond two kernels follow each other; past 16384
# the second reads its row twice.
WIDE = (
    Shape(37, 2048, 40, "one kernel"),
    Shape(37, 2047, 40, "one kernel, unaligned"),
    Shape(37, 2049, 40, "unaligned and too wide for one kernel"),
    Shape(37, 2052, 40, "rows aligned in fp32, not in 16 bits"),
    Shape(37, 8192, 40, "the widest row of one kernel"),
    Shape(37, 8200, 40, "aligned and too wide for one kernel"),
    Shape(37, 16392, 40, "two reads"),
    Shape(37, 16389, 40, "two reads, unaligned"),
    Shape(700, 2056, 40, "more rows than blocks: each goes on with what it knows of the columns"),
    Shape(8000, 512, 40, "two rows of fp32 logits to a warp"),
    Shape(8001, 500, 40, "a row of fp32 logits to a warp"),
    Shape(700, 1000, 40, "a longer row of fp32 logits to a warp"),
)
of_all = pytest.mark.parametrize("op", OPS)
in_training = pytest.mark.parametrize("op", TRAIN)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@of_all
def test_shapes(device, op, numerics, shape):
    check_call(make_statistics_call(op, shape, numerics, device))


@pytest.mark.parametrize("shape", RAGGED, ids=str)
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@of_all
def test_ragged(device, op, numerics, shape):
    judge_call(make_statistics_call(op, shape, numerics, device))


@pytest.mark.parametrize("shape", WIDE, ids=str)
@pytest.mark.parametrize("scale", ["none", "scalar", "one_fp32", "own"])
@pytest.mark.parametrize("numerics", [IEEE, FP16, BF16_FP32], ids=str)
@pytest.mark.parametrize("op", [NORM_SOFTMAX_TRAIN, NORM_SOFTMAX])
def test_wide_softmax(device, op, numerics, scale, shape):
    call = make_statistics_call(op, shape, numerics, device, scale=scale)
    # Logits close together: else wide rows in fp16 are little but zeros, and do not add up to 1.
    judge_call(call.change(gamma=call.gamma / 4, beta=call.beta / 4))


@pytest.mark.parametrize("kind", SCALE_KINDS)
@pytest.mark.parametrize("numerics", [IEEE, FP16, BF16_FP32], ids=str)
@of_all
def test_scales(device, op, numerics, kind):
    judge_call(make_statistics_call(op, LAYOUT_SHAPE, numerics, device, scale=kind))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@of_all
def test_vectors(device, op, numerics, kind):
    """Bias, gamma, beta and the running statistics; "none" leaves out what may be left out."""
    statistics = "own" if kind in ("none", "expanded") else kind
    kinds = {"bias": kind, "vectors": kind, "statistics": statistics}
    judge_call(make_statistics_call(op, LAYOUT_SHAPE, numerics, device, **kinds))


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
@of_all
def test_layouts(device, op, numerics, layout):
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device)
    judge_call(call.change(x=layout(call.x)))
    judge_call(call.change(weight=layout(call.weight)))


@pytest.mark.parametrize(
    ("layout_x", "layout_weight"),
    [(transpose, transpose), (widen_rows, misalign_rows), (cut_block, cut_block)],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@of_all
def test_both_layouts(device, op, numerics, layout_x, layout_weight):
    kinds = {"bias": "strided", "scale": "offset", "vectors": "strided", "statistics": "strided"}
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device, **kinds)
    judge_call(call.change(x=layout_x(call.x), weight=layout_weight(call.weight)))


@pytest.mark.parametrize("momentum", [None, 0.0, 1.0])
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@in_training
def test_momentum(device, op, numerics, momentum):
    for statistics in ("fp32", "own"):
        kinds = {"statistics": statistics, "momentum": momentum}
        results = judge_call(make_statistics_call(op, LAYOUT_SHAPE, numerics, device, **kinds))
        assert int(results["num_batches_tracked"]) == 5


@pytest.mark.parametrize("missing", [("running_mean",), ("running_var",), ("num_batches_tracked",)])
@in_training
def test_each_running_statistic_may_be_missing(device, op, missing):
    call = make_statistics_call(op, LAYOUT_SHAPE, IEEE, device)
    judge_call(call.change(**dict.fromkeys(missing)))


@pytest.mark.parametrize("shape", [*SHAPES, *WIDE[-3:]], ids=str)
@pytest.mark.parametrize("numerics", [FP16, BF16], ids=str)
@in_training
def test_without_z_in_16_bits(device, op, numerics, shape):
    """A kernel that keeps no z may round once less."""
    judge_call(make_statistics_call(op, shape, numerics, device).change(keep_z=False))


@pytest.mark.parametrize("shape", [*SHAPES, *WIDE[-3:]], ids=str)
@pytest.mark.parametrize("numerics", [IEEE, TF32, FP16_FP32, BF16_FP32], ids=str)
@in_training
def test_keep_z_changes_no_other_result(device, op, numerics, shape):
    """Without it y is computed where z stood."""
    call = make_statistics_call(op, shape, numerics, device)
    kept, ours = call.run_all(), call.change(keep_z=False).run_all()
    assert kept.pop("z").shape == (shape.m, shape.n)
    assert ours.pop("z").shape == (0, shape.n)
    assert_same_bits(ours, kept)


@pytest.mark.parametrize("numerics", [IEEE, FP16], ids=str)
@in_training
def test_keep_z_is_not_the_default(device, op, numerics):
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device)
    y, z, _, _ = call.overload()(*call.copy_updated().arguments()[:-1])
    assert z.shape == (0, call.n) and z.dtype == y.dtype
    assert torch.equal(y, call.change(keep_z=False).run_all()["y"])


@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
@of_all
def test_special_values(device, op, numerics):
    judge_call(make_special_statistics_call(op, numerics, device))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@of_all
def test_special_inputs(device, op, numerics, value):
    """In training one such element of x spoils all columns; in eval its row alone, as in eager."""
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device)
    call.x[5, 7] = value
    y = call.run_all()["y"]
    if op == NORM_SOFTMAX:
        assert y[5].isnan().any() and y[:5].isfinite().all() and y[6:].isfinite().all()
        judge_call(call)
    else:
        assert y.isnan().all()


@pytest.mark.parametrize("scale", [torch.inf, torch.nan, 0.0])
@pytest.mark.parametrize("numerics", [IEEE, BF16, FP16_FP32], ids=str)
@of_all
def test_special_scales(device, op, numerics, scale):
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device, scale="one")
    judge_call(call.change(scale=torch.full_like(call.scale, scale)))
