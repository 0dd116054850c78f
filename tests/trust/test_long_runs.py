"""The long runs of bench.trust, short and on the CPU, and that they see what is wrong."""

import json
import random

import pytest
import torch

from bench.trust import __main__ as trust
from bench.trust import long_runs, pieces, soak
from bench.trust.long_runs import MIB, MOST_DEVICE, MOST_HOST, Sample
from cutlass_fused import nn

COMMIT = "0123456789abcdef"


def test_threads():
    found = long_runs.run_threads("cpu", threads=4, seconds=0.0, width=48, rows=40)
    assert found.pop("seconds") > 0
    assert found == {"rounds": 2, "calls": 32, "threads": 4, "wrong": []}


def test_a_result_of_another_thread_is_seen(monkeypatch):
    """A module that keeps something of a call in itself."""
    forward = long_runs.Shared.forward

    def remember(self, x):
        y = forward(self, x)
        self.count = getattr(self, "count", 0) + 1
        return y + (self.count > 3)

    monkeypatch.setattr(long_runs.Shared, "forward", remember)
    found = long_runs.run_threads("cpu", threads=4, seconds=0.0, width=48, rows=40)
    assert found["wrong"] and "other bits" in found["wrong"][0]


def test_an_exception_of_a_thread_is_seen(monkeypatch):
    import threading

    forward = long_runs.Shared.forward

    def fail(self, x):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("no memory")
        return forward(self, x)

    monkeypatch.setattr(long_runs.Shared, "forward", fail)
    found = long_runs.run_threads("cpu", threads=2, seconds=0.0, width=48, rows=40)
    assert any("RuntimeError: no memory" in each for each in found["wrong"])


def test_soak():
    found = long_runs.run_soak("cpu", 0.0, samples=6, largest=60, programs=3, steps=8)
    assert found["steps"] == 48 and found["wrong"] == []
    json.dumps(found, allow_nan=False)


def test_everything_is_a_step_of_a_soak():
    """Every kind of module, in training and in inference, with gradients and without."""
    seen = set()

    def look(module, inputs):
        seen.add((type(module).__name__, module.training, inputs[0].requires_grad))

    rng, programs = random.Random(1), [long_runs._make_function(0)]
    handle = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        for _ in range(150):
            long_runs.take_step(rng, "cpu", 20, programs)
    finally:
        handle.remove()
    names = (nn.Linear, nn.LinearScaleLeakyReLU, nn.LinearScaleBatchNorm1d)
    for name in (*names, nn.LinearBatchNorm1dScaleSoftmax):
        for training in (True, False):
            for asks in (True, False):
                assert (name.__name__, training, asks) in seen


def make_samples(**changes):
    """Twelve, of which what changes in the last is given."""
    samples = [Sample(i, i, 1000, 2000, 3 * MIB, 100 * MIB, 0) for i in range(12)]
    return [*samples[:-1], samples[-1]._replace(**changes)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"gpu": 1512}, "tensors are left"),
        ({"splits": 1}, "parts of weights are left"),
        ({"host": 101 * MIB + MOST_HOST}, "97 MiB more of host memory"),
        ({"device": 4 * MIB + MOST_DEVICE}, "65 MiB more of device memory"),
    ],
)
def test_what_grows_is_seen(changes, told):
    assert long_runs.judge_samples(make_samples()) == []
    beside_others = long_runs.judge_samples(make_samples(**changes), is_alone=False)
    assert bool(beside_others) == ("device" not in changes)
    (wrong,) = long_runs.judge_samples(make_samples(**changes))
    assert told in wrong


def test_a_leak_is_seen(monkeypatch):
    # Much of it: a process that has run other tests may give back memory meanwhile.
    kept, most = [], 8 * MIB
    step = long_runs.take_step

    def leak(*arguments):
        kept.append(bytearray(b"1" * (16 * MIB)))
        step(*arguments)

    monkeypatch.setattr(long_runs, "take_step", leak)
    monkeypatch.setattr(long_runs, "MOST_HOST", most)
    found = long_runs.run_soak("cpu", 0.0, samples=4, largest=20, programs=2, steps=20)
    assert len(found["wrong"]) == 1 and "host memory" in found["wrong"][0]


def test_command(tmp_path, capsys):
    options = ["--device", "cpu", "--commit", COMMIT, "--out", str(tmp_path)]
    assert soak.main(["--part", "threads", "--seconds", "0", "--threads", "2", *options]) == 0
    (piece,) = pieces.read_pieces(tmp_path, "soak")
    assert (piece["run"], piece["threads"], piece["wrong"]) == ("threads", 2, [])
    with pytest.raises(SystemExit):
        soak.main(["--part", "replays", *options])


@pytest.mark.parametrize("text", ["-1", "nan", "long"])
@pytest.mark.parametrize("part", [["soak", "--part", "soak"], ["fuzz"], ["sanitize"], ["stock"]])
def test_seconds_that_are_none_are_refused(part, text, tmp_path, capsys):
    with pytest.raises(SystemExit):
        trust.main([*part, "--out", str(tmp_path), f"--seconds={text}"])
    assert f"0 or more, got '{text}'" in capsys.readouterr().err
