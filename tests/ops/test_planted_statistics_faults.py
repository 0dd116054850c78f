"""The judge of statistics rejects every planted fault, passes the reference, and says why."""

import accuracy_statistics
import pytest
import torch
from accuracy import Rejected, UnfitYardstick
from accuracy_statistics import StatisticsJudge
from calls import NORM_TRAIN, SCALE_NORM_TRAIN, SOFTMAX
from cases import BF16, IEEE
from cases_statistics import OPS_AND_NUMERICS, make_statistics_call
from planted_row_faults import ROW_FAULTS
from planted_statistics_faults import FAULTS, RAGGED

CASES = [
    pytest.param(fault, op, numerics, id=f"{fault.name}-{op}-{numerics}")
    for fault in (*FAULTS, *ROW_FAULTS)
    for op in fault.ops
    for numerics in fault.numerics
    if (op, numerics) in OPS_AND_NUMERICS
]


@pytest.mark.parametrize(("fault", "op", "numerics"), CASES)
def test_fault_is_rejected(fault, op, numerics):
    call = fault.make(op, numerics)
    judge = StatisticsJudge(call)
    right = call.refer_all()
    judge.check(right)
    spoilt = fault.spoil(call)
    for name, ours in spoilt.items():
        assert (ours.dtype, ours.shape) == (right[name].dtype, right[name].shape)
    with pytest.raises(Rejected):
        judge.check(spoilt)


def test_rejection_names_the_worst_element():
    call = make_statistics_call(NORM_TRAIN, RAGGED, IEEE)
    judge = StatisticsJudge(call)
    results = call.refer_all()
    results["running_var"][30] += 1.0
    results["running_var"][76] += 8.0
    with pytest.raises(Rejected) as rejection:
        judge.check(results)
    message = str(rejection.value)
    for part in (
        "running_var: error above the limit, in 2 of 77 elements",
        "the worst is [76]",
        f"ours {results['running_var'][76].item()!r}",
        f"eager {judge.eager['running_var'][76].item()!r}",
        f"truth {judge.truth['running_var'][76].item()!r}",
    ):
        assert part in message


def test_row_sums_are_named():
    call = make_statistics_call(SOFTMAX, RAGGED, IEEE)
    results = call.refer_all()
    results["y"][7] *= 1 + 2.0**-22
    with pytest.raises(Rejected, match="row 7 adds up to 1.0000"):
        StatisticsJudge(call).check(results)


@pytest.mark.parametrize(("op", "numerics"), OPS_AND_NUMERICS, ids=str)
def test_bad_yardstick_is_no_excuse(op, numerics, monkeypatch):
    """Rules 3 and 4 take twice eager's error: an eager result far from the truth must not count."""
    run_eager_all = accuracy_statistics.run_eager_all

    def run_badly(call):
        results = run_eager_all(call)
        results["y"][3, 3] += 10.0
        return results

    call = make_statistics_call(op, RAGGED, numerics)
    monkeypatch.setattr(accuracy_statistics, "run_eager_all", run_badly)
    with pytest.raises(UnfitYardstick, match=r"\[3, 3\]"):
        StatisticsJudge(call)


def test_wrong_shape_dtype_and_layout_are_rejected():
    call = make_statistics_call(SCALE_NORM_TRAIN, RAGGED, BF16)
    judge, right = StatisticsJudge(call), call.refer_all()
    for name, spoil, message in (
        ("y", torch.Tensor.float, "torch.float32"),
        ("z", lambda t: t[:-1], "expected"),
        ("y", lambda t: t.t().contiguous().t(), "contiguous"),
        ("mean", torch.Tensor.bfloat16, "mean: expected"),
        ("running_var", torch.Tensor.bfloat16, "running_var: expected"),
        ("num_batches_tracked", torch.Tensor.float, "num_batches_tracked: expected"),
    ):
        with pytest.raises(Rejected, match=message):
            judge.check(right | {name: spoil(right[name])})


def test_z_must_be_empty_where_it_is_not_kept():
    call = make_statistics_call(SCALE_NORM_TRAIN, RAGGED, BF16)
    kept, judge = call.refer_all(), StatisticsJudge(call.change(keep_z=False))
    right = call.change(keep_z=False).refer_all()
    judge.check(right)
    with pytest.raises(Rejected, match="z: expected"):
        judge.check(right | {"z": kept["z"]})
