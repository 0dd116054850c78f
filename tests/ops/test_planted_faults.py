"""The judge rejects every planted fault, passes the reference on the same inputs, and says why."""

import accuracy
import pytest
import torch
from accuracy import Judge, Rejected, UnfitYardstick
from calls import LEAKY, LINEAR
from cases import BF16, IEEE, NUMERICS, Shape, make_call
from planted_faults import FAULTS, RAGGED

CASES = [
    pytest.param(fault, op, numerics, id=f"{fault.name}-{op}-{numerics}")
    for fault in FAULTS
    for op in fault.ops
    for numerics in fault.numerics
]


@pytest.mark.parametrize(("fault", "op", "numerics"), CASES)
def test_fault_is_rejected(fault, op, numerics):
    call = fault.make(op, numerics)
    judge = Judge(call)
    judge.check(call.refer())
    spoilt = fault.spoil(call)
    assert spoilt.dtype == call.result_dtype
    with pytest.raises(Rejected):
        judge.check(spoilt)


def test_rejection_names_the_worst_element():
    call = make_call(LINEAR, RAGGED, IEEE)
    judge = Judge(call)
    result = call.refer()
    result[20, 30] += 1.0
    result[36, 76] += 8.0
    with pytest.raises(Rejected) as rejection:
        judge.check(result)
    message = str(rejection.value)
    for part in (
        "in 2 of 2849 elements",
        "[row, column] = [36, 76]",
        f"ours {result[36, 76].item()!r}",
        f"eager {judge.eager[36, 76].item()!r}",
        f"truth {judge.truth[36, 76].item()!r}",
        f"limit {judge.largest_limit()!r}",
    ):
        assert part in message


def test_rows_are_named_as_in_x():
    call = make_call(LINEAR, RAGGED, IEEE)
    result = call.refer()
    result[36, 5] = 100.0
    with pytest.raises(Rejected, match=r"\[row, column\] = \[36, 5\]"):
        Judge(call, rows=torch.tensor([0, 17, 36])).check(result)


@pytest.mark.parametrize("numerics", NUMERICS, ids=str)
def test_bad_yardstick_is_no_excuse(numerics, monkeypatch):
    """Rule 3 takes twice eager's error: an eager result far from the truth must not count."""
    run_eager = accuracy.run_eager

    def run_badly(call):
        result = run_eager(call)
        result[3, 3] += 10.0
        return result

    call = make_call(LEAKY, RAGGED, numerics)
    monkeypatch.setattr(accuracy, "run_eager", run_badly)
    with pytest.raises(UnfitYardstick, match=r"\[3, 3\]"):
        Judge(call)


def test_wrong_shape_dtype_and_layout_are_rejected():
    call = make_call(LINEAR, RAGGED, BF16)
    judge, result = Judge(call), call.refer()
    with pytest.raises(Rejected, match="torch.float32"):
        judge.check(result.float())
    with pytest.raises(Rejected, match="expected"):
        judge.check(result[:-1])
    with pytest.raises(Rejected, match="contiguous"):
        judge.check(result.t().contiguous().t())


def test_ulp_of_an_output():
    for dtype, eps in ((torch.float32, 2.0**-23), (torch.float16, 2.0**-10), (BF16.dtype, 2.0**-7)):
        values = torch.tensor([1.0, 1.99, 2.0, -3.0, 0.75], dtype=torch.float64)
        expected = torch.tensor([1.0, 1.0, 2.0, 2.0, 0.5], dtype=torch.float64) * eps
        assert torch.equal(accuracy.ulp(values, dtype), expected)
    zero = torch.zeros((), dtype=torch.float64)
    assert accuracy.ulp(zero, torch.float16) == 2.0**-24


def test_round_to_tf32_keeps_eleven_bits():
    one = 1.0 + 2.0**-10  # the last bit that TF32 keeps
    values = torch.tensor([one, 1.0 + 2.0**-12, 1.0 + 2.0**-11, one + 2.0**-11, -one, torch.inf])
    expected = torch.tensor([one, 1.0, 1.0, 1.0 + 2.0**-9, -one, torch.inf])
    assert torch.equal(accuracy.round_to_tf32(values), expected)


def test_empty_result_passes():
    for m, n in ((0, 8), (8, 0), (0, 0)):
        call = make_call(LINEAR, Shape(m, n, 16, "empty"), IEEE)
        Judge(call).check(call.refer())
