"""What a case must not inherit: the compiler's state, PyTorch's fp32 precision, the grad mode."""

import contextlib
import functools
import types

import pytest
import torch

from bench import host, memory_bound, sweep
from bench.cases import cases, peers, sweep_cases
from bench.measure import timing

SMALL = {"m": 16, "n": 48, "k": 64}


def list_small(precision):
    found = cases.list_cases(["12", "33"], [precision], ["eval"])
    return [case._replace(**SMALL) for case in found]


def measure_model(precision):
    for case in list_small(precision):
        timing.measure_case("models", case, ["ours", "eager"], "cpu", rounds=2)


def measure_host(precision):
    for case in list_small(precision):
        host.measure_host("cpu", 1, case)


def measure_layer(precision):
    for model in memory_bound.LAYERS:
        (case, *_) = memory_bound.list_layer_cases([model], [precision])
        case = case._replace(m=16, n=48)
        memory_bound.measure_layer("cpu", 2, ["ours", "eager"], case)


def measure_shape(precision):
    for model in sweep_cases.MODELS:
        case = sweep_cases.SweepCase(model, "eval", precision, **SMALL)
        sweep.measure_shape("cpu", 2, ["ours", "eager"], case)


BENCHES = {"models": measure_model, "host": measure_host, "memory_bound": measure_layer}
BENCHES["sweep"] = measure_shape
# The setting under which a precision is timed. The layers alone have no product to be set.
SETTINGS = [
    (name, precision, "high" if precision == "tf32" else "highest")
    for name in BENCHES
    for precision in (
        memory_bound.PRECISIONS if name == "memory_bound" else cases.comparison.PRECISIONS
    )
]


@pytest.fixture
def log(monkeypatch):
    """What happened: "reset", or the setting of a run. `log.fails` makes the runs raise once they
    have been checked and are timed."""

    class Log(list):
        fails = False

    log = Log()

    def record(build, problem):
        run, calls = build(problem), []

        def recording():
            assert not torch.is_grad_enabled()
            log.append(torch.get_float32_matmul_precision())
            calls.append(None)
            if log.fails and len(calls) > 1:
                raise RuntimeError("no memory")
            return run()

        return recording

    # There is nothing to capture into on a CPU.
    graphs = contextlib.nullcontext(types.SimpleNamespace(capture=lambda run: run))
    monkeypatch.setattr(sweep, "Graphs", lambda: graphs)
    monkeypatch.setattr(torch.compiler, "reset", lambda: log.append("reset"))
    for name in ("ours", "eager"):
        monkeypatch.setitem(peers.VARIANTS, name, functools.partial(record, peers.VARIANTS[name]))
    # The host bench without torch.compile, which takes long.
    calls = [
        call._replace(build=functools.partial(record, call.build))
        for call in host.CALLS
        if call.variant != "compile"
    ]
    prepare = host.prepare_calls
    monkeypatch.setattr(host, "CALLS", calls)
    monkeypatch.setattr(host, "prepare_calls", lambda problem: prepare(problem, calls))
    return log


def set_other(setting):
    """What the case must change, and change back."""
    other = {"high": "highest", "highest": "high"}[setting]
    torch.set_float32_matmul_precision(other)
    return other


@pytest.mark.parametrize("name, precision, setting", SETTINGS)
def test_variants_run_in_their_precision_which_is_then_put_back(name, precision, setting, log):
    other = set_other(setting)
    BENCHES[name](precision)
    # Two variants or more of two cases, each checked and then timed.
    assert len(log) >= 2 + 2 * 2 * 2 and set(log) == {"reset", setting}
    assert torch.get_float32_matmul_precision() == other


@pytest.mark.parametrize("name", BENCHES)
def test_precision_is_put_back_after_a_failure(name, log):
    other, log.fails = set_other("highest"), True
    with pytest.raises(RuntimeError, match="no memory"):
        BENCHES[name]("ieee")
    assert log[-1] == "highest"
    assert torch.get_float32_matmul_precision() == other


@pytest.mark.parametrize("name", BENCHES)
def test_compiler_is_reset_before_each_case(name, log):
    """Recompilations of earlier cases count towards the limit at which torch.compile gives up."""
    BENCHES[name]("ieee")
    assert log[0] == "reset" and log.count("reset") == 2
    # Between the last run of one case and the first of the next.
    second = log.index("reset", 1)
    assert 1 < second < len(log) - 1
