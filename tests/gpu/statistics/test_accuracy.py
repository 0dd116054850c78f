"""Mean and variance alone: where the mean is much larger than the deviation, over many batches, and
in one order."""

import pytest
import torch
from accuracy import ulp
from accuracy_statistics import StatisticsJudge
from calls import NORM_SOFTMAX_TRAIN, NORM_TRAIN, SCALE_NORM_TRAIN, TRAIN_OPS
from cases import BF16, BF16_FP32, FP16, FP16_FP32, IEEE, TF32, Shape
from cases_statistics import DISTANT_SHAPE, make_distant_call, make_statistics_call
from judge_call import assert_same_bits, judge_call
from layouts import misalign_rows

from cutlass_fused import nn

pytestmark = pytest.mark.gpu

RATIOS = (1.0, 1e2, 1e4)
DISTANT_SHAPES = (
    DISTANT_SHAPE,
    Shape(1000, 1001, 16, "odd N: elements loaded one by one"),
    Shape(16384, 264, 16, "many ranges to merge"),
)
SUMS = ("mean", "rstd", "running_mean", "running_var")


def largest_error(result, truth):
    return (result.double() - truth).abs().max()


@pytest.mark.parametrize("shape", DISTANT_SHAPES, ids=str)
@pytest.mark.parametrize("ratio", RATIOS)
def test_no_worse_than_eager(device, ratio, shape):
    """Not the judge's twice: eager's own largest error and one ulp, for each of the four."""
    call = make_distant_call(NORM_TRAIN, IEEE, ratio, device, shape=shape).change(momentum=1.0)
    judge, results = StatisticsJudge(call), call.run_all()
    judge.check(results)
    assert judge.truth["mean"].abs().mean() / 2.5 > ratio / 4
    for name in SUMS:
        truth = judge.truth[name]
        limit = largest_error(judge.eager[name], truth) + ulp(truth.abs().max(), torch.float32)
        error = largest_error(results[name], truth)
        assert error <= limit, f"{name}: error {error:.3e}, limit {limit:.3e}"


@pytest.mark.parametrize(
    ("numerics", "ratio"), [(FP16, 1.0), (FP16, 1e2), (BF16, 1.0), (BF16, 10.0)], ids=str
)
@pytest.mark.parametrize("shape", DISTANT_SHAPES, ids=str)
def test_no_worse_than_eager_in_16_bits(device, shape, numerics, ratio):
    """Truth is that of the numbers that x holds, however they were rounded; statistics in fp32."""
    call = make_distant_call(NORM_TRAIN, IEEE, ratio, device, shape=shape)
    call = call.change(x=call.x.to(numerics.dtype), momentum=1.0)
    judge, results = StatisticsJudge(call), call.run_all()
    judge.check(results)
    for name in SUMS:
        truth = judge.truth[name]
        limit = largest_error(judge.eager[name], truth) + ulp(truth.abs().max(), torch.float32)
        assert largest_error(results[name], truth) <= limit, name


@pytest.mark.parametrize("symmetric", [False, True], ids=["any", "exact means"])
@pytest.mark.parametrize("numerics", [IEEE, TF32, FP16_FP32, BF16_FP32], ids=str)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("op", [SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN])
def test_behind_a_product(device, op, ratio, numerics, symmetric):
    judge_call(make_distant_call(op, numerics, ratio, device, symmetric=symmetric))


# ---- many batches ----

STEPS = 20


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_running_statistics_over_many_batches(device, mean, momentum):
    """Beside torch.nn.BatchNorm1d, truth in float64: the error may not grow faster than eager's."""
    options = {"momentum": momentum, "device": device}
    ours, plain = nn.BatchNorm1d(264, **options), torch.nn.BatchNorm1d(264, **options)
    exact = torch.nn.BatchNorm1d(264, **options, dtype=torch.float64)
    generator = torch.Generator(device).manual_seed(0)
    for step in range(STEPS):
        x = 2.5 * torch.randn(333, 264, generator=generator, device=device) + mean
        with torch.no_grad():
            for model, batch in ((ours, x), (plain, x), (exact, x.double())):
                model(batch)
        assert int(ours.num_batches_tracked) == step + 1
        for name in ("running_mean", "running_var"):
            truth = getattr(exact, name)
            step_of_fp32 = ulp(truth.abs().max(), torch.float32)
            limit = 2 * largest_error(getattr(plain, name), truth) + step_of_fp32
            assert largest_error(getattr(ours, name), truth) <= limit, (step, name)


# ---- one order ----


@pytest.mark.parametrize("layout", [lambda x: x, misalign_rows], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("numerics", [IEEE, TF32, FP16, BF16, BF16_FP32], ids=str)
@pytest.mark.parametrize("op", TRAIN_OPS)
def test_two_runs_give_the_same_bits(device, op, numerics, layout):
    """No atomics; and kernels that start while the one before them ends read what it wrote."""
    if op == NORM_TRAIN and numerics in (TF32, BF16_FP32):
        pytest.skip("the stand-alone batch norm knows neither a precision nor an out_dtype")
    for shape in (Shape(70, 136, 64, "small"), Shape(5000, 1032, 72, "many blocks each way")):
        call = make_statistics_call(op, shape, numerics, device)
        call = call.change(x=layout(call.x))
        first = call.run_all()
        for _ in range(5):
            assert_same_bits(call.run_all(), first)
