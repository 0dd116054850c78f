"""The batch-norm ops on the CPU: against the modules of torch.nn, and by the judge."""

import pytest
import torch
from accuracy_statistics import StatisticsJudge
from calls import (
    NORM_OPS,
    NORM_SOFTMAX,
    NORM_SOFTMAX_TRAIN,
    NORM_TRAIN,
    OPS,
    SCALE_NORM_TRAIN,
    TRAIN_OPS,
    copy_memory,
)
from cases import BF16, BF16_FP32, FP16, IEEE, Shape
from cases_statistics import (
    LAYOUT_SHAPE,
    OPS_AND_NUMERICS,
    SHAPES,
    make_distant_call,
    make_special_statistics_call,
    make_statistics_call,
)
from check_call import check_call
from layouts import MATRIX_LAYOUTS, SCALE_KINDS, VECTOR_KINDS
from torch.nn import functional as F

STATISTICS = [op for op in NORM_OPS if op not in OPS]
NORMS_AND_NUMERICS = [pair for pair in OPS_AND_NUMERICS if pair[0] in STATISTICS]
FUSED = (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN, NORM_SOFTMAX)
SMALL = Shape(9, 14, 11, "small and odd")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
MOMENTUMS = (0.1, 0.0, 1.0, 0.75, None)


# ---- against torch.nn ----


def make_module(call, dtype=torch.float64):
    """A torch.nn.BatchNorm1d with the numbers of this call."""
    bn = torch.nn.BatchNorm1d(
        call.n, eps=call.eps, momentum=call.momentum, affine=call.gamma is not None, dtype=dtype
    ).train(call.op in TRAIN_OPS)
    with torch.no_grad():
        bn.running_mean.copy_(call.running_mean)
        bn.running_var.copy_(call.running_var)
        if call.op in TRAIN_OPS:
            bn.num_batches_tracked.copy_(call.num_batches_tracked)
        if call.gamma is not None:
            bn.weight.copy_(call.gamma)
            bn.bias.copy_(call.beta)
    return bn


def run_modules(call, bn):
    """y of the plain model in float64; `bn` is updated."""
    call = call.in_float64()
    z = call.x if call.weight is None else F.linear(call.x, call.weight, call.bias)
    if call.op == SCALE_NORM_TRAIN:
        z = z * call.scale
    y = bn(z).detach()
    return torch.nn.Softmax(dim=1)(call.scale * y) if call.op in FUSED[1:] else y


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", STATISTICS)
def test_is_nn_batch_norm(op, dtype, affine):
    call = make_statistics_call(op, SMALL, IEEE, vectors="own" if affine else "none")
    call = call.map_numbers(lambda tensor: tensor.to(dtype))
    bn = make_module(call)
    expected = {"y": run_modules(call, bn)} | {name: getattr(bn, name) for name in call.updated()}
    ours = call.run_all()
    # 16-bit results are rounded once; wider ones differ by rounding.
    tolerance = {8: 1e-13, 4: 4e-6, 2: 0.5001 * torch.finfo(dtype).eps}[dtype.itemsize]
    for name, result in expected.items():
        ours_wide = ours[name].to(result.dtype)
        torch.testing.assert_close(
            ours_wide, result, rtol=tolerance, atol=max(tolerance / 4, 1e-13)
        )


@pytest.mark.parametrize("momentum", MOMENTUMS)
@pytest.mark.parametrize("op", TRAIN_OPS)
def test_running_statistics_over_many_batches(op, momentum):
    """Each of the three tensors, also where the momentum is one over the count."""
    call = make_statistics_call(op, SMALL, IEEE, momentum=momentum).in_float64()
    bn = make_module(call)
    for seed in range(5):
        new = make_statistics_call(op, SMALL, IEEE, seed=seed).in_float64()
        call = call.change(x=new.x)
        run_modules(call, bn)
        call.run()
        for name, ours in call.updated().items():
            torch.testing.assert_close(ours, getattr(bn, name), rtol=1e-13, atol=1e-13)
    assert call.num_batches_tracked == 4 + 5


@pytest.mark.parametrize("op", TRAIN_OPS)
def test_results_for_the_backward_pass(op):
    """mean, rstd and z are those that y was made of."""
    call = make_statistics_call(op, SMALL, IEEE).in_float64()
    results = call.run_all()
    z = results.get("z", call.x)
    torch.testing.assert_close(results["mean"], z.mean(0))
    variance = z.var(0, correction=0)
    torch.testing.assert_close(results["rstd"], 1 / torch.sqrt(variance + call.eps))
    if op in FUSED:
        product = F.linear(call.x, call.weight, call.bias)
        scaled = product * call.scale if op == SCALE_NORM_TRAIN else product
        torch.testing.assert_close(z, scaled)


@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("op", TRAIN_OPS)
def test_empty_batch_is_that_of_pytorch(op, momentum):
    """It is counted; the running statistics stay."""
    shape = Shape(0, 14, 11, "empty")
    call = make_statistics_call(op, shape, IEEE, momentum=momentum)
    bn = make_module(call, torch.float32)
    assert bn(torch.empty(0, 14)).shape == (0, 14)
    results = call.run_all()
    assert results["y"].shape == (0, 14)
    for name in call.updated():
        assert torch.equal(results[name], getattr(bn, name)), name
    assert results["mean"].isfinite().all() and results["rstd"].isfinite().all()


@pytest.mark.parametrize("op", STATISTICS)
def test_float64_takes_no_detour(op):
    call = make_statistics_call(op, SMALL, IEEE).in_float64()
    exact, rounded = call.run_all(), call.map_numbers(torch.Tensor.float).run_all()
    nudged = call.change(x=call.x * (1 + 2.0**-40)).run_all()
    for name, result in exact.items():
        if name != "num_batches_tracked":
            assert result.dtype == torch.float64
            assert 0 < (result - rounded[name].double()).abs().max() < 1e-4
        if name in ("y", "z", "mean", "rstd") and op != NORM_SOFTMAX_TRAIN:
            assert not torch.equal(result, nudged[name])


def test_default_arguments_are_those_of_the_schemas():
    x = torch.randn(5, 4)
    mean, variance = torch.randn(4), torch.rand(4)
    ops = torch.ops.cutlass_fused
    expected = F.batch_norm(x, mean, variance)
    torch.testing.assert_close(ops.batch_norm_inference(x, mean, variance), expected)
    plain = mean.clone(), variance.clone()
    expected = F.batch_norm(x, *plain, training=True)
    y, _, _ = ops.batch_norm_train(x, mean, variance, None)
    torch.testing.assert_close((y, mean, variance), (expected, *plain))


# ---- by the judge ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("op", "numerics"), NORMS_AND_NUMERICS, ids=str)
def test_shapes(op, numerics, shape):
    check_call(make_statistics_call(op, shape, numerics))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("numerics", [BF16_FP32, IEEE], ids=str)
@pytest.mark.parametrize("op", [SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN])
def test_z_is_not_kept(op, numerics, shape):
    call = make_statistics_call(op, shape, numerics).change(keep_z=False)
    check_call(call)
    kept, ours = call.change(keep_z=True).run_all(), call.run_all()
    assert ours.pop("z").shape == (0, shape.n)
    for name, result in ours.items():
        assert torch.equal(result, kept[name]), name


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("op", STATISTICS)
def test_layouts(op, layout):
    call = make_statistics_call(op, LAYOUT_SHAPE, BF16)
    check_call(call.change(x=layout(call.x)))
    if op in FUSED:
        check_call(call.change(weight=layout(call.weight)))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("numerics", [FP16, IEEE], ids=str)
@pytest.mark.parametrize("op", STATISTICS)
def test_vectors(op, numerics, kind):
    statistics = kind if kind not in ("none", "expanded") else "own"
    kinds = {"bias": kind, "vectors": kind, "statistics": statistics}
    check_call(make_statistics_call(op, SMALL, numerics, **kinds))


@pytest.mark.parametrize("kind", SCALE_KINDS)
@pytest.mark.parametrize("op", FUSED)
def test_scales(op, kind):
    check_call(make_statistics_call(op, SMALL, BF16, scale=kind))


@pytest.mark.parametrize("given", [(), ("mean",), ("var",), ("mean", "var"), ("count",)], ids=str)
@pytest.mark.parametrize("op", TRAIN_OPS)
def test_each_running_statistic_may_be_missing(op, given):
    call = make_statistics_call(op, SMALL, IEEE)
    names = {"mean": "running_mean", "var": "running_var", "count": "num_batches_tracked"}
    missing = {name: None for key, name in names.items() if key not in given}
    check_call(call.change(**missing))


@pytest.mark.parametrize("momentum", MOMENTUMS)
@pytest.mark.parametrize("statistics", ["own", "fp32"])
@pytest.mark.parametrize("op", TRAIN_OPS)
def test_momentum(op, statistics, momentum):
    kinds = {"statistics": statistics, "momentum": momentum}
    check_call(make_statistics_call(op, SMALL, FP16, **kinds))


@pytest.mark.parametrize("missing", [("gamma",), ("beta",)], ids=str)
@pytest.mark.parametrize("op", STATISTICS)
def test_missing_vectors(op, missing):
    call = make_statistics_call(op, SMALL, IEEE)
    check_call(call.change(**dict.fromkeys(missing)))


@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize("op", STATISTICS)
def test_eps(op, eps):
    check_call(make_statistics_call(op, LAYOUT_SHAPE, IEEE, eps=eps))


@pytest.mark.parametrize(("op", "numerics"), NORMS_AND_NUMERICS, ids=str)
def test_special_values(op, numerics):
    check_call(make_special_statistics_call(op, numerics))


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("op", TRAIN_OPS)
def test_mean_much_larger_than_deviation(op, ratio):
    """Mean and variance no worse than eager's: of the stand-alone op, whose input is exact."""
    call = make_distant_call(op, IEEE, ratio)
    judge = check_call(call)
    if op == NORM_TRAIN:
        results = call.change(momentum=1.0).run_all()
        momentary = StatisticsJudge(call.change(momentum=1.0))
        for name in ("running_mean", "running_var"):
            error = (results[name].double() - momentary.truth[name]).abs().max()
            last_place = torch.finfo(torch.float32).eps * momentary.truth[name].abs().max()
            assert error <= momentary.largest_eager_error(name) + last_place
    assert judge.truth["mean"].abs().mean() / 2.5 > ratio / 4


@pytest.mark.parametrize("op", TRAIN_OPS)
def test_surroundings_of_running_statistics_stay(op):
    """Views into larger tensors are updated in their places only."""
    call = make_statistics_call(op, SMALL, IEEE, statistics="strided")
    before = copy_memory(call.running_mean)
    around = torch.as_strided(call.running_mean, (3 * SMALL.n,), (1,), 0)
    call.run()
    assert around[0::3].isnan().all() and around[2::3].isnan().all()
    assert not torch.equal(call.running_mean, before)
