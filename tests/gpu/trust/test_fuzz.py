"""The fuzzer on a GPU, for seconds: canaries around results, streams, captures, forced tiles; and
planted faults in these. The whole of it is `python -m bench.trust fuzz`."""

import dataclasses

import fuzz_around
import pytest
import torch
from accuracy import Rejected
from fuzz_around import Around, read_memory, run
from fuzz_case import CanaryDied
from fuzz_inputs import Limits
from fuzz_one import FAILURES, KINDS, draw_case, judge_one

pytestmark = pytest.mark.gpu

LIMITS = Limits(products=2**24, numbers=2**18, size=4000)


def test_cases_are_right():
    found = [judge_one(7, number, "cuda", LIMITS) for number in range(60)]
    assert not [each for each in found if each.verdict in FAILURES]
    assert any(each.has_canaries for each in found)


def find_case(wanted=lambda case: True, kind="call"):
    cases = (draw_case(7, n, "cuda", LIMITS, (kind,))[0] for n in range(300))
    return next(case for case in cases if wanted(case) and "non-finite" not in case.words)


@pytest.mark.parametrize("around", [Around(stream=True), Around(graph=True), Around(canaries=True)])
@pytest.mark.parametrize("kind", KINDS)
def test_surroundings_change_no_bit(kind, around):
    case = find_case(kind=kind)
    expected, _ = run(case, Around())
    found, _ = run(case, around)
    for name, tensor in expected.items():
        assert torch.equal(found[name].nan_to_num(), tensor.nan_to_num()), name


def test_there_are_canaries():
    """Around most results; a call that takes other memory first may have none."""
    cases = [draw_case(7, n, "cuda", LIMITS, ("call",))[0] for n in range(40)]
    cases = [case for case in cases if case.form is not None]
    assert sum(run(case, Around(canaries=True))[1] for case in cases) > len(cases) / 3


def write_behind(y, offset):
    """As a kernel that goes on behind its result; or in front of it, by a negative offset."""
    source = """extern "C" __global__ void write(unsigned char* y, int offset) { y[offset] = 1; }"""
    torch.cuda._compile_kernel(source, "write")((1, 1, 1), (1, 1, 1), (y, offset))
    torch.cuda.synchronize()


@pytest.mark.parametrize("place", ["slack", "behind", "in front"])
def test_overruns_are_found(place):
    def has_canaries(case):
        y_bytes = torch.Size(case.form[0]).numel() * case.form[1].itemsize if case.form else 0
        is_linear = case.words.startswith("linear ")  # which takes no memory but its result's
        has_slack = y_bytes % 512 not in (0, 511)
        return is_linear and has_slack and run(case, Around(canaries=True))[1]

    case = find_case(has_canaries)

    def overrun():
        results = case.run()
        y = next(iter(results.values()))
        count = y.numel() * y.itemsize
        places = {"slack": count, "behind": -(-count // 512) * 512, "in front": -1}
        write_behind(y, places[place])
        return results

    with pytest.raises(CanaryDied):
        run(dataclasses.replace(case, run=overrun), Around(canaries=True))


def test_memory_is_read():
    x = torch.arange(100, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    assert read_memory(x.data_ptr() + 10, 5) == bytes(range(10, 15))
    assert read_memory(x.data_ptr(), 0) == b""


def test_work_on_another_stream_is_found(monkeypatch):
    monkeypatch.setattr(fuzz_around, "WAIT", 2**30)  # longer than a busy host takes to launch
    case = find_case(lambda case: case.words.startswith("linear "))

    def run_elsewhere():
        with torch.cuda.stream(torch.cuda.Stream()):
            return case.run()

    results, _ = run(dataclasses.replace(case, run=run_elsewhere), Around(stream=True))
    with pytest.raises(Rejected):
        case.make_judge().check(results)


def test_what_a_capture_missed_is_found():
    """A result that was computed once, and is not again where the graph is replayed."""
    case = find_case(lambda case: case.words.startswith("linear "))
    calls = []

    def forget():
        calls.append(1)
        if len(calls) == 1:
            return case.run()
        return {"y": torch.empty(case.form[0], dtype=case.form[1], device="cuda")}

    with pytest.raises(Rejected, match="a replay's bits"):
        run(dataclasses.replace(case, run=forget), Around(graph=True))
