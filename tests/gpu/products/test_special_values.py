"""NaN, infinities, the largest and smallest numbers: where eager has them, and nowhere else."""

import pytest
import torch
from accuracy import Judge
from calls import LEAKY, LINEAR, OPS
from cases import (
    BF16,
    FP16,
    IEEE,
    NUMERICS,
    ONE_OUTPUT,
    TF32,
    Shape,
    make_call,
    make_special_call,
)
from check_call import check_call, run_poisoned
from layouts import misalign_rows
from tiles import force_tile, list_tiles

pytestmark = pytest.mark.gpu

SHAPE = Shape(70, 136, 72, "several tiles")


OPS_AND_SLOPES = [(op, 0.1) for op in OPS] + [(LEAKY, slope) for slope in (0.0, -0.5, 2.0)]


@pytest.mark.parametrize(("op", "slope"), OPS_AND_SLOPES)
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_everywhere_at_once(device, op, numerics, slope):
    check_call(make_special_call(op, numerics, device, slope=slope))


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_on_every_kernel(device, op, numerics):
    """Each tile, and the kernels for unaligned rows."""
    call = make_special_call(op, numerics, device)
    judge = Judge(call)
    for tile in list_tiles(call):
        with force_tile(tile):
            judge.check(run_poisoned(call))
    for change in ({"x": misalign_rows(call.x)}, {"weight": misalign_rows(call.weight)}):
        judge.check(run_poisoned(call.change(**change)))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_other_rows_are_as_accurate_as_ever(device, numerics, value):
    """One special element per tile: its row is special, every other row keeps its accuracy."""
    call = make_call(LEAKY, SHAPE, numerics, device)
    rows = torch.tensor([0, 31, 64, 69], device=device)
    call.x[rows, torch.tensor([0, 7, 40, 71], device=device)] = value
    result = run_poisoned(call)
    Judge(call).check(result)
    others = torch.tensor([row for row in range(70) if row not in (0, 31, 64, 69)], device=device)
    assert result[others].isfinite().all()
    Judge(call, others).check(result)
    Judge(call.take_rows(others)).check(result[others])


@pytest.mark.parametrize("k", [20, 72, 75])
@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_infinity_times_zero(device, numerics, k):
    """inf * 0 = NaN where the zero is one of weight, and nothing where it pads K to a stage."""
    call = make_call(LINEAR, Shape(40, 72, k, "K ends inside a stage"), numerics, device)
    call.x[3, -1] = torch.inf
    call.weight[5] = 0
    call.weight[6, -1] = 0
    call.weight[7, -1] = -1
    result = run_poisoned(call)
    assert result[3, 5].isnan() and result[3, 6].isnan() and result[3, 7] == -torch.inf
    assert result[:3].isfinite().all() and result[4:].isfinite().all()
    check_call(call)


@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_opposite_infinities(device, numerics):
    call = make_call(LINEAR, SHAPE, numerics, device)
    call.x[3, 0], call.x[3, 71] = torch.inf, -torch.inf
    call.weight[:, 0], call.weight[:, 71] = 1.0, 1.0
    assert run_poisoned(call)[3].isnan().all()
    check_call(call)


def largest(numerics):
    """The largest number that the operands of this engine hold: TF32 rounds FLT_MAX to infinity."""
    if numerics is TF32:
        return (2 - 2.0**-10) * 2.0**127
    return torch.finfo(numerics.dtype).max


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", [LINEAR, LEAKY])
def test_largest_numbers(device, op, numerics):
    """One product per element, below, at and above the largest number of the result.

    The slope is 1: eager overflows in front of the activation, one rounding only behind it.
    """
    options = {"scale": "none", "multiplier": 1.0, "slope": 1.0, "bias": "none"}
    call = make_call(op, SHAPE, numerics, device, **options)
    call.x.zero_()
    call.x[torch.arange(70), torch.arange(70)] = largest(numerics)
    signs = torch.where(torch.arange(136, device=device) % 2 == 0, 1.0, -1.0)
    sizes = torch.tensor([2.0**-20, 0.5, 0.75, 1.0, 2.0, 100.0], device=device)
    call.weight.copy_((signs * sizes.repeat(23)[:136])[:, None].expand(136, 72))
    result = run_poisoned(call)
    assert result.isinf().any() and result.isfinite().any() and not result.isnan().any()
    check_call(call)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_smallest_numbers(device, numerics):
    """Subnormal inputs, and products that are subnormal or vanish."""
    call = make_call(LINEAR, SHAPE, numerics, device, bias="none")
    info = torch.finfo(numerics.dtype)
    sizes = torch.tensor([info.tiny * info.eps, info.tiny / 2, info.tiny, 1.0], device=device)
    call.x[:4].copy_(sizes[:, None].to(numerics.dtype).expand(4, 72))
    call.weight[::2] *= 2.0**-6
    check_call(call)


@pytest.mark.parametrize("exponent", [-100, -60, 60, 100])
@pytest.mark.parametrize("numerics", [IEEE, TF32, BF16], ids=str)
def test_rows_of_very_different_size(device, numerics, exponent):
    """Each half is judged alone: a scale chosen for one must not cost the other its accuracy."""
    call = make_call(LINEAR, SHAPE, numerics, device, bias="none")
    call.x[1::2] *= 2.0**exponent
    result = run_poisoned(call)
    for rows in (torch.arange(0, 70, 2), torch.arange(1, 70, 2)):
        Judge(call, rows.to(device)).check(result)


@pytest.mark.parametrize("exponent", [-10, -6, 6, 10])
def test_fp16_rows_of_very_different_size(device, exponent):
    call = make_call(LINEAR, SHAPE, FP16, device, bias="none")
    call.x[1::2] *= 2.0**exponent
    check_call(call.change(weight=call.weight * 2.0**-exponent))


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_special_vectors_spoil_their_column_only(device, op, numerics):
    call = make_call(op, SHAPE, numerics, device, vectors="fp32")
    names = [name for name in call.tensors() if name not in ("x", "weight")]
    for column, name in enumerate(names):
        getattr(call, name)[column * 3] = torch.nan
        getattr(call, name)[column * 3 + 1] = torch.inf
    result = run_poisoned(call)
    assert result[:, len(names) * 3 :].isfinite().all()
    assert result[:, 0].isnan().all()
    check_call(call)
