"""The stand-alone batch norms: shapes, layouts, vectors, momentum, special columns."""

import pytest
import torch
from calls import NORM, NORM_TRAIN
from cases import BF16, FP16, IEEE, Shape
from cases_statistics import SHAPES, make_special_statistics_call, make_statistics_call
from check_call import check_call
from judge_call import assert_same_bits, judge_call
from layouts import (
    MATRIX_LAYOUTS,
    cut_block,
    misalign_rows,
    offset_storage,
    repeat_first_row,
    transpose,
)

pytestmark = pytest.mark.gpu

NUMERICS = (IEEE, FP16, BF16)
OPS = (NORM_TRAIN, NORM)
# Ragged against the 16 or 32 rows of a block, the 32 of a range, and a block's 256 or 512 columns.
ROWS = (2, 3, 31, 33, 1000)
COLUMNS = (1, 7, 64, 1001, 4096)
# Clusters keep the second alone on chip.
TALL = (
    Shape(70000, 3, 0, "many ranges of rows, and one block of columns"),
    Shape(20000, 264, 0, "eight blocks to a cluster, many rows in shared memory"),
    Shape(60000, 264, 0, "too tall for eight blocks, and aligned"),
    Shape(2**21 + 33, 3, 0, "more blocks of rows than a grid has along y"),
    Shape(9003, 1001, 0, "rows at every distance from a boundary of 16 bytes"),
)
# Clusters of 1 to 8 blocks; groups of 32 to 256 bytes; rows in registers and in shared memory; a
# last block with fewer rows.
ON_CHIP = (
    Shape(120, 136, 0, "two blocks, registers"),
    Shape(1024, 512, 0, "few columns: a cluster each"),
    Shape(16384, 512, 0, "most blocks of a cluster, full"),
    Shape(9001, 72, 0, "ragged rows"),
    Shape(17, 1032, 0, "fewer rows than threads"),
    Shape(1024, 8192, 0, "one block to a cluster, shared memory"),
    Shape(4097, 2056, 0, "two or four blocks, ragged"),
    Shape(130, 40000, 0, "more clusters than the GPU holds"),
    Shape(256, 16392, 0, "groups of 256 bytes, the last one cut"),
    Shape(1000, 1001, 0, "single elements in registers"),
    Shape(5003, 333, 0, "single elements in shared memory"),
)
LAYOUT_SHAPE = Shape(70, 136, 0, "aligned but for its layout")
momentums = pytest.mark.parametrize("momentum", [None, 0.0, 1.0, 0.3])
in_each = pytest.mark.parametrize("numerics", NUMERICS, ids=str)
of_both = pytest.mark.parametrize("op", OPS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@in_each
@of_both
def test_shapes(device, op, numerics, shape):
    check_call(make_statistics_call(op, shape, numerics, device))


@pytest.mark.parametrize("n", COLUMNS)
@pytest.mark.parametrize("m", ROWS)
@in_each
@of_both
def test_ragged(device, op, numerics, m, n):
    judge_call(make_statistics_call(op, Shape(m, n, 0, "ragged"), numerics, device))


@pytest.mark.parametrize("shape", TALL, ids=str)
@in_each
@of_both
def test_tall(device, op, numerics, shape):
    judge_call(make_statistics_call(op, shape, numerics, device))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("shape", ON_CHIP, ids=str)
@in_each
def test_on_chip(device, numerics, shape, momentum):
    """One read and one write; two runs give the same bits."""
    call = make_statistics_call(NORM_TRAIN, shape, numerics, device, momentum=momentum)
    assert_same_bits(judge_call(call), call.run_all())


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=lambda f: f.__name__)
@in_each
@of_both
def test_layouts(device, op, numerics, layout):
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device)
    judge_call(call.change(x=layout(call.x)))


@pytest.mark.parametrize("layout", [cut_block, offset_storage, misalign_rows, transpose])
@in_each
@of_both
def test_layouts_of_large_matrices(device, op, numerics, layout):
    """Many blocks each way, elements loaded one by one, NaN around them."""
    call = make_statistics_call(op, Shape(1100, 1032, 0, "blocks each way"), numerics, device)
    judge_call(call.change(x=layout(call.x)))


@pytest.mark.parametrize("kind", ["own", "fp32", "strided"])
@pytest.mark.parametrize("statistics", ["own", "fp32", "offset", "strided", "none"])
@in_each
@of_both
def test_vectors(device, op, numerics, statistics, kind):
    """The running statistics of one kind, gamma and beta of another."""
    if op == NORM and statistics == "none":
        statistics = "expanded"  # read only, so one number may be seen N times
    kinds = {"vectors": kind, "statistics": statistics}
    judge_call(make_statistics_call(op, LAYOUT_SHAPE, numerics, device, **kinds))


@pytest.mark.parametrize("missing", [("gamma",), ("beta",), ("gamma", "beta")], ids=str)
@in_each
@of_both
def test_missing_vectors(device, op, numerics, missing):
    call = make_statistics_call(op, LAYOUT_SHAPE, numerics, device)
    judge_call(call.change(**dict.fromkeys(missing)))


@pytest.mark.parametrize("eps", [1e-5, 0.3])
@in_each
@of_both
def test_eps(device, op, numerics, eps):
    judge_call(make_statistics_call(op, LAYOUT_SHAPE, numerics, device, eps=eps))


HEAVY_SHAPES = (
    Shape(2500, 264, 0, "on chip"),
    Shape(2500, 20000, 0, "ranges of some 200 rows"),
    Shape(3000, 8193, 0, "elements loaded one by one"),
    Shape(70001, 520, 0, "the longest ranges, the last of them short"),
)


@pytest.mark.parametrize("shape", HEAVY_SHAPES, ids=str)
def test_heavy_tails(device, shape):
    """Outliers in every column, some of them the first number that a thread meets."""
    call = make_statistics_call(NORM_TRAIN, shape, IEEE, device)
    generator = torch.Generator(device).manual_seed(5)
    normal = torch.randn((2, shape.m, shape.n), generator=generator, device=device)
    x = torch.exp(2 * normal[0]) * normal[1].sign()
    results = judge_call(call.change(x=x))
    rstd = 1 / torch.sqrt(x.double().var(0, correction=0) + call.eps)
    assert ((results["rstd"] - rstd) / rstd).abs().max() < 1e-6  # about 16 roundings


# ---- running statistics ----

TRACKED = ("running_mean", "running_var", "num_batches_tracked")


@pytest.mark.parametrize("statistics", ["fp32", "own", "strided"])
@momentums
@in_each
def test_momentum(device, numerics, statistics, momentum):
    kinds = {"statistics": statistics, "momentum": momentum}
    call = make_statistics_call(NORM_TRAIN, LAYOUT_SHAPE, numerics, device, **kinds)
    results = judge_call(call)
    assert int(results["num_batches_tracked"]) == int(call.num_batches_tracked) + 1
    if momentum == 0.0:
        for name in TRACKED[:2]:
            assert torch.equal(results[name], getattr(call, name)), name


@pytest.mark.parametrize("given", [(), TRACKED[:1], TRACKED[1:2], TRACKED[:2], TRACKED[2:]])
@in_each
def test_each_running_statistic_may_be_missing(device, numerics, given):
    """y, mean and rstd are the same without them."""
    call = make_statistics_call(NORM_TRAIN, LAYOUT_SHAPE, numerics, device)
    part = call.change(**{name: None for name in TRACKED if name not in given})
    results, whole = judge_call(part), call.run_all()
    assert_same_bits(results, {name: whole[name] for name in results})


@momentums
@in_each
def test_empty_batch(device, numerics, momentum):
    """It is counted, and nothing else changes."""
    shape = Shape(0, 40, 0, "no rows")
    call = make_statistics_call(NORM_TRAIN, shape, numerics, device, momentum=momentum)
    before = {name: tensor.clone() for name, tensor in call.updated().items()}
    y, mean, rstd = call.run()
    assert y.shape == (0, 40) and not mean.any()
    torch.testing.assert_close(rstd, torch.full_like(rstd, call.eps**-0.5))
    assert int(call.num_batches_tracked) == int(before["num_batches_tracked"]) + 1
    for name in TRACKED[:2]:
        assert torch.equal(getattr(call, name), before[name]), name


def test_running_statistics_of_stride_0(device):
    """One number cannot hold the statistics of many columns."""
    call = make_statistics_call(NORM_TRAIN, LAYOUT_SHAPE, IEEE, device)
    for name in TRACKED[:2]:
        tensor = getattr(call, name)
        before = tensor.clone()
        bad = call.change(**{name: tensor[:1].expand(call.n)})
        with pytest.raises(RuntimeError, match=f"{name} must have elements of its own"):
            bad.run()
        assert torch.equal(tensor, before) and int(call.num_batches_tracked) == 4


# ---- columns ----


@pytest.mark.parametrize("layout", [lambda x: x, cut_block], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("value", [0.0, 0.7, -1e4])
@in_each
def test_constant_columns(device, numerics, value, layout):
    """No rounding makes a variance of them: y is beta, exactly."""
    for m in (2, 33, 777, 1000, 3000):
        shape = Shape(m, 264, 0, "constant columns")
        call = make_statistics_call(NORM_TRAIN, shape, numerics, device, eps=1e-5)
        call.x[:, ::3] = value
        call = call.change(x=layout(call.x))
        results = judge_call(call)
        assert torch.equal(results["mean"][::3], call.x[0, ::3].float())
        expected = call.beta[::3].to(call.x.dtype).expand(m, -1)
        assert torch.equal(results["y"][:, ::3], expected)
    judge_call(call.change(x=repeat_first_row(call.x)))


@in_each
@of_both
def test_special_values(device, op, numerics):
    judge_call(make_special_statistics_call(op, numerics, device))


@pytest.mark.parametrize("layout", [lambda x: x, cut_block], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("row", [0, 1, 100, 999])
@in_each
def test_special_columns(device, numerics, row, layout):
    """NaN and infinities, wherever they lie, spoil their own column as in eager, and no other.

    Whether a mean is infinite or NaN depends on the order of the sum, in eager too.
    """
    shape = Shape(1000, 264, 0, "columns")
    call = make_statistics_call(NORM_TRAIN, shape, numerics, device)
    special, others = torch.tensor([0, 8, 131, 263]), torch.ones(264, dtype=torch.bool)
    others[special] = False
    values = torch.tensor([torch.nan, torch.inf, -torch.inf, torch.inf], device=device)
    call.x[row, special.to(device)] = values.to(call.x.dtype)
    call = call.change(x=layout(call.x))
    results = call.run_all()
    others = others.to(device)
    assert results["y"][:, ~others].isnan().all() and results["rstd"][~others].isnan().all()
    for name in ("mean", *TRACKED[:2]):
        assert not results[name][~others].isfinite().any(), name
    part = {name: getattr(call, name)[others] for name in ("gamma", "beta", *TRACKED[:2])}
    kept = judge_call(call.change(x=call.x[:, others], **part))
    for name in ("y", "mean", "rstd", *TRACKED[:2]):
        torch.testing.assert_close(results[name][..., others], kept[name], rtol=1e-2, atol=1e-2)
        assert results[name][..., others].isfinite().all(), name


def test_squares_that_overflow(device):
    """A variance beyond fp32 is infinite: y is beta, as in eager."""
    call = make_statistics_call(NORM_TRAIN, Shape(200, 40, 0, "large"), IEEE, device)
    call = call.change(x=call.x * 1e25, running_var=None)
    y, mean, rstd = call.run()
    assert torch.equal(y, call.beta.expand_as(y)) and not rstd.any()
    torch.testing.assert_close(mean.double(), call.x.double().mean(0), rtol=1e-5, atol=1e19)


@pytest.mark.parametrize("spread", [0.0, 1e17])
@pytest.mark.parametrize("m", [2, 33, 777, 1000, 3000])
@pytest.mark.parametrize("numerics", [IEEE, BF16], ids=str)
def test_means_whose_squares_overflow(device, numerics, m, spread):
    """Beyond 2^64 the square of a mean is infinite in fp32; the variance is not."""
    call = make_statistics_call(NORM_TRAIN, Shape(m, 264, 0, "large"), numerics, device)
    x = (torch.randn(m, 264, device=device) * spread + 1e20).to(call.x.dtype)
    y, mean, rstd = call.change(x=x).run()
    variance, exact_mean = torch.var_mean(x.double(), 0, correction=0)
    torch.testing.assert_close(mean.double(), exact_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        rstd.double(), 1 / torch.sqrt(variance + call.eps), rtol=1e-2, atol=0
    )
    assert y.isfinite().all()
