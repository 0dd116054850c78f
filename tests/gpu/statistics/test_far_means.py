"""Batch norm in training of 16-bit columns with a far mean: what is normalized is what the
statistics are of, in every kernel, and in the backward pass."""

import pytest
import torch
from accuracy_statistics import StatisticsJudge
from calls import NORM_SOFTMAX_TRAIN, SCALE_NORM_TRAIN
from cases import BF16, FP16, Shape
from cases_far_means import FAR, SOURCES, make_far_call
from judge_call import judge_call
from judge_gradients import differentiate, judge_all
from judge_tiles import judge_tiles
from norm_functions import FUSED, run_eager

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

SHAPES = (
    Shape(200, 136, 40, "on chip"),
    Shape(1000, 264, 40, "in groups"),
    Shape(5000, 264, 40, "by the product"),
    Shape(4099, 2056, 72, "by kernels of their own behind it"),
    Shape(16384, 2048, 40, "in strips"),
)
# What inputs make far, and only a product sees before it is rounded: elsewhere both are as wrong as
# each other, and 2 times eager's error is no measure of sums of what is left.
CASES = [
    pytest.param(shape, source, *far, id=f"{shape}-{source}-{far[0]:g}-{far[1]:g}")
    for shape in SHAPES
    for source in SOURCES
    for far in FAR
    if source == "bias" or shape in (SHAPES[2], SHAPES[4]) or far[0] <= 1e2
]
of_all_cases = pytest.mark.parametrize(("shape", "source", "ratio", "deviation"), CASES)
of_all_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
of_both = pytest.mark.parametrize("op", (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN))
in_16_bits = pytest.mark.parametrize("numerics", [BF16, FP16], ids=str)
of_all_ratios = pytest.mark.parametrize(("ratio", "deviation"), FAR)
of_all_sources = pytest.mark.parametrize("source", SOURCES)


@of_all_shapes
@of_all_ratios
@of_all_sources
@in_16_bits
def test_outputs(device, numerics, source, ratio, deviation, shape):
    call = make_far_call(SCALE_NORM_TRAIN, shape, numerics, ratio, deviation, source, device)
    judge_call(call.change(keep_z=False))


@of_all_cases
@in_16_bits
def test_softmax_behind_it(device, numerics, source, ratio, deviation, shape):
    """What counts is the largest relative error of normal numbers: a group rounds logits to 16
    bits."""
    call = make_far_call(NORM_SOFTMAX_TRAIN, shape, numerics, ratio, deviation, source, device)
    judge, y = StatisticsJudge(call.change(keep_z=False)), call.change(keep_z=False).run_all()["y"]
    truth = judge.truth["y"]
    counted = truth >= torch.finfo(y.dtype).tiny
    error = ((y.double() - truth).abs() / truth)[counted].max()
    eager = judge.largest_eager_error("y", relative=True)
    assert error <= 2 * eager + torch.finfo(y.dtype).eps


@of_all_ratios
@in_16_bits
def test_outputs_of_sm80_tiles(device, numerics, ratio, deviation):
    call = make_far_call(SCALE_NORM_TRAIN, SHAPES[1], numerics, ratio, deviation, "x", device)
    judge_tiles(call.change(keep_z=False))


@of_all_shapes
@of_all_sources
@in_16_bits
def test_constant_columns_give_beta(device, numerics, source, shape):
    call = make_far_call(SCALE_NORM_TRAIN, shape, numerics, 1e3, 1.0, source, device)
    y = call.change(keep_z=False).run_all()["y"]
    beta = call.beta.to(y.dtype)
    assert torch.equal(y[:, 7::8], beta[7::8].expand(shape.m, -1))


@of_all_shapes
@of_all_ratios
@of_all_sources
@in_16_bits
@of_both
def test_kept_z_is_that_of_its_centre(device, op, numerics, source, ratio, deviation, shape):
    """z is returned less a shift of each column: less the centre it is z less its mean."""
    call = make_far_call(op, shape, numerics, ratio, deviation, source, device)
    centre = torch.full((shape.n,), torch.nan, device=device)
    copy = call.copy_updated()
    _, z, _, _ = copy.overload()(*copy.arguments(), centre=centre)
    truth = call.in_float64().refer_all()
    distance = truth["z"] - truth["mean"]
    # What a bias makes far is stored near. What inputs make far, where a product finds statistics
    # of it; elsewhere it is rounded as it is, and the statistics are of that.
    is_near = source == "bias" or shape in (SHAPES[2], SHAPES[4])
    eps = torch.finfo(z.dtype).eps
    deviations = distance.square().mean(0).sqrt()
    size = deviations if is_near else deviations + truth["mean"].abs()
    size = size + truth["mean"].abs().minimum(deviations / eps)
    sums = 8 * 2.0**-23 * truth["z"].abs()
    error = (z.double() - centre.double() - distance).abs()
    assert (error <= 2 * eps * (distance.abs() + size) + sums + 2.0**-24).all()
    # The centre is the mean of the z that is returned, but for its roundings. Those of a tile whose
    # mean is not far, which stores z as it is, are of numbers that cover a spacing or more and
    # cancel, but for a tenth of a spacing: more where the spacing changes, as at 256.
    rounding = 2 * eps * (z.double().abs().mean(0) + deviations) + 2.0**-24
    rounding += 0.1 * eps * truth["mean"].abs().minimum(deviations / eps)
    assert ((z.double().mean(0) - centre).abs() <= rounding).all()


@of_all_cases
@in_16_bits
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_gradients(device, function, numerics, source, ratio, deviation, shape):
    call = make_far_call(function.op(True), shape, numerics, ratio, deviation, source, device)
    generator = torch.Generator(device).manual_seed(1)
    names = ("x", "weight", "gamma", "beta")
    leaves = {name: getattr(call, name).clone().requires_grad_() for name in names}
    bias, statistics = {"bias": call.bias, "scale": None}, (None, None)
    grad_y = torch.randn(shape.m, shape.n, generator=generator, device=device)
    ours = getattr(functional, function.ours.__name__)
    options = {"training": True, "eps": call.eps}

    def run(leaves):
        x, weight, gamma, beta = leaves.values()
        return ours(x, weight, call.bias, None, None, None, gamma, beta, **options)

    mine = differentiate(lambda: run(leaves), leaves, grad_y)
    eager = differentiate(
        lambda: run_eager(function, leaves | bias, statistics, True, eps=call.eps), leaves, grad_y
    )
    wide = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    bias["bias"] = call.bias.double()
    truth = differentiate(
        lambda: run_eager(function, wide | bias, statistics, True, eps=call.eps), wide, grad_y
    )
    judge_all(mine, eager, truth)
