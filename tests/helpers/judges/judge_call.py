"""Runs and judges one call of any op: check_call without the tracing, which the cases that differ
in layouts and kinds of vectors only need not repeat."""

from __future__ import annotations

import torch
from accuracy import Judge
from accuracy_statistics import StatisticsJudge
from calls import STATISTICS_OPS, Call
from check_call import describe_signature, run_all_poisoned, run_poisoned

_checked: set[tuple] = set()


def make_judge(call: Call) -> Judge | StatisticsJudge:
    return StatisticsJudge(call) if call.op in STATISTICS_OPS else Judge(call)


def check_results(judge: Judge | StatisticsJudge, results: dict[str, torch.Tensor]) -> None:
    """`results` are what Call.run_all gives."""
    judge.check(results if isinstance(judge, StatisticsJudge) else results["y"])


def judge_call(call: Call) -> dict[str, torch.Tensor]:
    """Everything that the op wrote, by name; the call's own tensors are not updated."""
    judge = make_judge(call)
    if call.op in STATISTICS_OPS:
        results = run_all_poisoned(call)
    else:
        results = {"y": run_poisoned(call)}
    check_results(judge, results)
    _check_registration(call)
    return results


def _check_registration(call: Call) -> None:
    """The cheap parts of torch.library.opcheck, once for all that differ in sizes only."""
    layouts = tuple((t.dim(), t.is_contiguous()) for t in call.tensors().values())
    signature = (describe_signature(call), layouts)
    if signature in _checked:
        return
    _checked.add(signature)
    torch.library.opcheck(
        call.overload(),
        call.copy_updated().arguments(),
        test_utils=("test_schema", "test_faketensor"),
    )


def assert_same_bits(ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Compares two results of Call.run_all; NaN is the same as itself."""
    assert ours.keys() == expected.keys()
    for name, tensor in ours.items():
        other = expected[name]
        assert (tensor.shape, tensor.dtype) == (other.shape, other.dtype), name
        bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (tensor, other)]
        assert torch.equal(*bits), name


def check_kernels_wait(*calls: Call) -> None:
    """The calls have one shape; x changes right in front of each and right behind it."""
    expected = [call.run_all() for call in calls]
    x = torch.empty_like(calls[0].x)
    results = []
    for _ in range(5):
        for call in calls:
            x.copy_(call.x)
            results.append(call.change(x=x).run_all())
            x.fill_(torch.nan)
    for i, found in enumerate(results):
        assert_same_bits(found, expected[i % len(calls)])
