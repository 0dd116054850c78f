"""First calls of processes, without a GPU."""

import os
import pathlib
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
        first_calls.run_process([make_case("gelu")], str(folder), cores)


def test_links_have_cores_and_caches_of_their_own(monkeypatch):
    """What they make is found by later processes, each of which calls all and runs alone."""
    links, later, lock, together = {}, [], threading.Lock(), threading.Barrier(3, timeout=10)
    running = []

    def run(cases, folder, cores):
        running.append(cases)
        path = pathlib.Path(folder, "kernels")
        if len(cases) == 1:
            if cases[0].program == "gelu":
                running.remove(cases)
                raise RuntimeError("no memory")
            with lock:
                links[cases[0]] = folder, tuple(cores)
            path.mkdir(parents=True)
            (path / cases[0].program).write_text("")
            together.wait()  # three run at the same time
        else:
            assert running == [cases] and tuple(cores) == (0, 1)
            later.append(sorted(each.name for each in path.iterdir()))
        running.remove(cases)
        return [{"ms": float(len(cases) + index)} for index, _ in enumerate(cases)]

    monkeypatch.setattr(first_calls, "run_process", run)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    *cases, failed = (make_case(name) for name in ("affine", "gate", "silu", "gelu"))
    found = first_calls.measure_all([*cases, failed])
    for index, case in enumerate(cases):
        cached = [{"ms": 3.0 + index}] * 3
        assert found[case] == {"first_call": [{"ms": 1.0}], "cached_call": cached}
    assert str(found[failed]) == "no memory"
    assert later == [["affine", "gate", "silu"]] * 3
    assert len(set(links.values())) == 3 and len({folder for folder, _ in links.values()}) == 3
    assert len({cores for _, cores in links.values()}) == 3
    assert all(len(cores) == 2 for _, cores in links.values())
    assert not any(os.path.exists(folder) for folder, _ in links.values())


def test_nothing_linked(monkeypatch):
    def run(cases, folder, cores):
        raise RuntimeError("no memory")

    monkeypatch.setattr(first_calls, "run_process", run)
    found = first_calls.measure_all([make_case("gelu")])
    assert str(found[make_case("gelu")]) == "no memory"


def test_one_core_is_enough(monkeypatch):
    def run(cases, folder, cores):
        pathlib.Path(folder).mkdir(exist_ok=True)
        return [{"cores": cores}]

    monkeypatch.setattr(first_calls, "run_process", run)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    found = first_calls.measure_all([make_case("gate")])
    assert found[make_case("gate")]["first_call"] == [{"cores": [5]}]
