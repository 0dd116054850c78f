"""First calls of processes, without a GPU."""

import os
import threading

import pytest
import torch

from bench.epilogues import first_calls
from bench.epilogues.cases import EpilogueCase
from bench.epilogues.programs import PROGRAMS
from bench.measure.checking import WrongResult


def make_case(program, precision="bf16"):
    return EpilogueCase("first", program, precision, 24, 20, 16)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(first_calls.FOLDER, str(tmp_path))
    return tmp_path


def test_a_call_counts_what_it_links(folder, monkeypatch):
    """On a CPU nothing is linked: here the call itself leaves two files."""
    (folder / "before").write_text("")
    forward = first_calls.Ours.forward

    def link(self, x):
        if len(x) == 24:  # not where it is traced
            (folder / "kernels").mkdir()
            for name in "ab":
                (folder / "kernels" / name).write_text("")
        return forward(self, x)

    monkeypatch.setattr(first_calls.Ours, "forward", link)
    call = first_calls.call_first(make_case("affine"), "cpu")
    assert call["kernels"] == 2 and 0 < call["rel_err"] < 1e-2
    assert 0 < call["ms"] < call["wall_ms"]


def test_the_function_is_traced_before(folder, monkeypatch):
    traced = []
    trace = first_calls.Ours.forward

    def log(self, x):
        traced.append((len(x), len(PROGRAMS["gate"].ours.traced._programs)))
        return trace(self, x)

    monkeypatch.setattr(first_calls.Ours, "forward", log)
    monkeypatch.setattr(PROGRAMS["gate"].ours.traced, "_programs", {})
    first_calls.call_first(make_case("gate"), "cpu")
    # The call that is timed finds what the one before it has made.
    assert traced == [(3, 0), (24, 1)]
    assert len(PROGRAMS["gate"].ours.traced._programs) == 1


def test_wrong_results_are_told(folder, monkeypatch):
    monkeypatch.setattr(first_calls.Ours, "forward", lambda self, x: 1.02 * self.plain(x))
    with pytest.raises(WrongResult):
        first_calls.call_first(make_case("gelu"), "cpu")


def test_a_process_says_why_it_failed(folder):
    """It has no GPU."""
    if torch.cuda.is_available():
        pytest.skip("it would not fail")
    cores = sorted(os.sched_getaffinity(0))[:2]
    with pytest.raises(RuntimeError, match="first: gelu, bf16, M=24 N=20 K=16 fails: "):
        first_calls.run_process(make_case("gelu"), str(folder), cores)


def test_processes_have_cores_and_caches_of_their_own(monkeypatch):
    seen, lock, together = [], threading.Lock(), threading.Barrier(3, timeout=10)

    def run(case, folder, cores):
        with lock:
            is_new = not any(folder == other for _, other, _ in seen)
            seen.append((case, folder, tuple(cores)))
        if is_new and case.program != "gelu":
            together.wait()  # three run at the same time
        if case.program == "gelu":
            raise RuntimeError("no memory")
        return {"ms": 2.0 + is_new}

    monkeypatch.setattr(first_calls, "run_process", run)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    cases = [make_case(name) for name in ("affine", "gate", "silu")]
    found = first_calls.measure_all(cases)
    for case in cases:
        assert found[case] == {"first_call": [{"ms": 3.0}], "cached_call": [{"ms": 2.0}] * 3}
        own = {(folder, cores) for each, folder, cores in seen if each == case}
        assert len(own) == 1 and len(seen) == 3 * 4
        ((folder, cores),) = own
        assert len(cores) == 2 and not os.path.exists(folder)
    assert len({cores for _, _, cores in seen}) == 3
    failed = first_calls.measure_all([make_case("gelu")])
    assert str(failed[make_case("gelu")]) == "no memory"


def test_one_core_is_enough(monkeypatch):
    monkeypatch.setattr(first_calls, "run_process", lambda case, folder, cores: {"cores": cores})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    found = first_calls.measure_all([make_case("gate")])
    assert found[make_case("gate")]["first_call"] == [{"cores": [5]}]
