"""The timers, and the calls of the host bench."""

import time

import pytest
import torch

from bench import host
from bench.cases import cases
from bench.measure import checking, results, switch, timing
from cutlass_fused.matmul import _state
from cutlass_fused.timing import Timing, shuffle_rounds, summarize, time_in_turns


def test_every_round_runs_each_variant_once_in_changing_order():
    ran = []
    variants = {name: lambda name=name: ran.append(name) for name in "abc"}
    timings = time_in_turns(variants, "cpu", rounds=20, warm_up_rounds=5)
    rounds = [tuple(ran[start : start + 3]) for start in range(0, len(ran), 3)]
    assert len(rounds) == 25 and all(set(order) == set("abc") for order in rounds)
    assert len(set(rounds)) > 3
    assert rounds[5:] == [tuple(order) for order in shuffle_rounds("abc", 20)]
    assert list(timings) == list("abc")


def test_summary_is_median_least_most():
    assert summarize([5.0, 1.0, 2.0]) == (2.0, 1.0, 5.0)


def test_times_are_milliseconds_per_call():
    variants = {"short": lambda: None, "long": lambda: time.sleep(2e-3)}
    for timings in (
        time_in_turns(variants, "cpu", rounds=3, warm_up_rounds=0),
        timing.time_host(variants, "cpu", rounds=3, calls=4),
    ):
        # A busy machine can only make it longer.
        assert 2 <= timings["long"].least
        assert timings["short"].least < 1


def test_what_comes_before_a_run_is_not_timed():
    ran = []
    variants = {name: lambda name=name: ran.append(name) for name in "ab"}

    def wait():
        ran.append("before")
        time.sleep(2e-3)

    timings = time_in_turns(variants, "cpu", rounds=2, warm_up_rounds=1, before=wait)
    # Three rounds, of which one does not count, of two variants.
    assert ran[::2] == ["before"] * 6 and sorted(ran[1::2]) == ["a"] * 3 + ["b"] * 3
    ran.clear()
    waiting = timing.time_waiting(variants, "cpu", rounds=2, before=wait)
    calls = 2 * (1 + timing.CALLS_IN_TURN)
    assert ran[::2] == ["before"] * 2 * calls
    assert sorted(ran[1::2]) == ["a"] * calls + ["b"] * calls
    assert max(each.least for each in (*timings.values(), *waiting.values())) < 2


def test_the_first_call_of_a_turn_does_not_count():
    """It is the one behind another variant."""
    ran = []

    def call(name):
        if ran[-1:] != [name]:
            time.sleep(2e-3)
        ran.append(name)

    variants = {name: lambda name=name: call(name) for name in "ab"}
    waiting = timing.time_waiting(variants, "cpu", rounds=4)
    turn = 1 + timing.CALLS_IN_TURN
    orders = shuffle_rounds(variants, 4)
    assert ran == [name for order in orders for name in order for _ in range(turn)]
    assert max(each.median for each in waiting.values()) < 2


def make_problem(model, mode, precision="ieee"):
    (case,) = host.list_host_cases([model], [precision], [mode])
    return cases.build_problem(case, "cpu")


QUICK_CALLS = [call for call in host.CALLS if call.variant != "compile"]  # compiling takes long


@pytest.mark.parametrize(
    "model, mode",
    [("12", "eval"), ("33", "train"), ("33", "eval"), ("84", "train"), ("84", "eval")],
)
def test_calls_of_the_host_bench_compute_what_they_say(model, mode):
    problem = make_problem(model, mode)
    with torch.no_grad():
        runs, errors = host.prepare_calls(problem, QUICK_CALLS)
    assert list(runs) == list(errors) == [call.label for call in QUICK_CALLS]
    assert max(errors.values()) < 1e-5
    # Under the module lies one op of ours.
    op = runs["ours: raw op"].func
    assert op.namespace == "cutlass_fused" and ("train" in op.name()) == (mode == "train")


def test_wrong_call_of_the_host_bench_is_never_timed():
    def build_untrained(problem):
        module = host.build_module(problem)
        mean = problem.plain.bn.running_mean
        return lambda: (module(), mean.zero_())[0]

    problem = make_problem("33", "train")
    with torch.no_grad(), pytest.raises(checking.WrongResult, match="wrong: bn.running_mean"):
        host.prepare_calls(problem, [host.Call("wrong", "ours", build_untrained)])


def test_host_cases_are_small_and_each_once():
    listed = host.list_host_cases(host.MODELS, ["ieee"], ["train", "eval"])
    assert [(case.model, case.mode) for case in listed] == [
        ("12", "eval"),
        ("33", "train"),
        ("33", "eval"),
        ("84", "train"),
        ("84", "eval"),
    ]
    assert {(case.m, case.n, case.k) for case in listed} == {(64, 64, 64)}


def test_host_table_is_in_microseconds():
    assert len({call.label for call in host.CALLS}) == len(host.CALLS)
    timings = {call.label: Timing(1.0, 0.5, 2.0) for call in host.CALLS}
    assert host.format_table(timings).count("1000.00") == len(host.CALLS)


def test_the_switch_is_timed_before_and_after_the_first_one(monkeypatch, capsys):
    """On a CPU, where it changes nothing: the order of what is done, and the rows."""
    done = []

    def time_host(variants, device, rounds):
        (run,) = variants.values()
        done.append((_state.word, run().dtype))
        return dict.fromkeys(variants, Timing(0.25, 0.2, 0.5))

    monkeypatch.setattr(switch, "time_host", time_host)
    cases = switch.list_switch_cases(["ieee", "bf16"])
    never = switch.measure_never(cases, "cpu", 1)
    rows = [row for case in cases for row in switch.measure_switch(never, "cpu", 1, case)]
    assert [word for word, _ in done] == [None] * 6 + [None, "ieee"] * 6
    assert {dtype for _, dtype in done} == {torch.float32, torch.bfloat16}
    for row in rows:
        results.check_row(row)
    found = {(results.case_of(row), row["variant"]) for row in rows}
    assert len(found) == len(rows) == 2 * 2 * 3
    assert capsys.readouterr().out.count("250.00 us    +0.00 us    1.000") == 3 * 6


def test_a_wrong_product_is_never_timed(monkeypatch):
    def build(a, b, c):
        factor = 1.001 if a.dtype == torch.float32 else 1
        return lambda: a[0] @ b[0] * factor

    monkeypatch.setitem(switch.PRODUCTS, "mm", build)
    with pytest.raises(checking.WrongResult):
        switch.measure_never([switch.SwitchCase("mm", "ieee")], "cpu", 1)
