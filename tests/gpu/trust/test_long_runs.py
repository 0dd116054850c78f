"""The long runs of bench.trust, for seconds: the whole of them is `python -m bench.trust soak`."""

import pytest
import torch

from bench.trust import long_runs

pytestmark = pytest.mark.gpu


def test_threads():
    found = long_runs.run_threads("cuda", threads=8, seconds=5.0)
    assert found["wrong"] == [] and found["rounds"] >= 2


def test_replays():
    found = long_runs.run_replays(2000, look_every=100)
    assert found["wrong"] == []


def test_replays_of_other_bits_are_seen(monkeypatch):
    """From some replay on nothing runs: what was filled with NaN stays so."""
    replay, count = torch.cuda.CUDAGraph.replay, []

    def stop(self):
        count.append(1)
        if len(count) < 20:
            replay(self)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", stop)
    assert "other bits" in long_runs.run_replays(50, look_every=10)["wrong"][0]


def test_soak():
    """Tests beside this one take memory of the GPU too."""
    options = {"samples": 6, "largest": 400, "programs": 2, "steps": 30, "is_alone": False}
    found = long_runs.run_soak("cuda", 0.0, **options)
    assert found["wrong"] == []
