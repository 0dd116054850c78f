"""autotune on the CPU: what it finds, and what becomes of that. The GPUs are fakes."""

import os
import subprocess
import sys
import textwrap

import fake_gpus
import pytest
import torch
from fake_gpus import CHOICE, TILES

import cutlass_fused
from cutlass_fused import autotune, functional
from cutlass_fused.timing import Timing
from cutlass_fused.tuning import _cache, _fastest, _tuned

X, WEIGHT = torch.randn(4, 8), torch.randn(5, 8)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def gpus(monkeypatch):
    with fake_gpus.install(monkeypatch) as gpus:
        yield gpus


@pytest.fixture
def restart(monkeypatch, gpus):
    """What another process begins with."""

    def restart():
        monkeypatch.setattr(_tuned, "_tiles", {})
        monkeypatch.setattr(_tuned, "_read", set())
        gpus.tuned.clear()
        gpus.log.clear()

    return restart


# ---- what is found ----


def test_the_fastest_is_used_from_then_on(gpus):
    assert gpus.call() == CHOICE
    with autotune():
        assert gpus.call() == CHOICE
        assert gpus.timed() == []
    assert gpus.timed() == ["k1"]
    assert gpus.call() == "faster"
    assert gpus.call("k2") == CHOICE
    assert "tuned products: 1" in cutlass_fused.show_config()


def test_all_are_screened_and_the_best_meet_the_choice_again(gpus):
    with autotune():
        gpus.call()
    (_, few, screened), (_, many, final) = gpus.log
    assert screened == sorted(TILES) and few < many
    assert final == sorted({"slow", "slow again", "faster", "fast", "slower"})


def test_call_runs_once_and_returns_the_result(gpus):
    def model(*args, **kwargs):
        return gpus.call(*args), kwargs

    assert autotune(model, "k7", function=3) == (CHOICE, {"function": 3})
    assert gpus.timed() == ["k7"] and gpus.call("k7") == "faster"


def test_nothing_is_timed_twice(gpus):
    for _ in range(2):
        with autotune():
            gpus.call()
            gpus.call()
    assert len(gpus.log) == 2  # screening and final


def test_choice_of_the_heuristic_is_kept_too(gpus, folder, restart):
    """So that it is not timed again, here and in the next process."""
    gpus.milliseconds |= {"fast": 1.2, "faster": 0.995}
    for _ in range(2):
        with autotune():
            gpus.call()
        assert gpus.tuned[0, "k1"] == CHOICE
    assert len(gpus.log) == 2
    restart()
    with autotune():
        gpus.call()
    assert gpus.log == []


def test_gpus_of_one_name_share_it(gpus):
    with autotune():
        gpus.call(device=0)
        gpus.call(device=1)
        gpus.call(device=2)
    assert gpus.call(device=0) == gpus.call(device=1) == gpus.call(device=2) == "faster"
    assert len(gpus.log) == 2 * 2
    assert _cache.read_tiles("GPU A") == _cache.read_tiles("GPU B") == {"k1": "faster"}


def format_timings(choice, again, **others):
    medians = {"choice": choice, "choice again": again} | others
    return {name: Timing(median, median, median) for name, median in medians.items()}


@pytest.mark.parametrize(
    ("times", "winner"),
    [
        (format_timings(1.0, 1.0, a=0.9, b=0.8), "b"),
        (format_timings(1.0, 1.0, a=0.995), "choice"),  # less than a hundredth
        (format_timings(1.0, 1.0, a=1.0, b=1.1), "choice"),
        (format_timings(1.0, 1.2, a=0.95), "choice"),  # the choice differs from itself by more
        (format_timings(1.2, 1.0, a=0.95), "choice"),
        (format_timings(1.2, 1.0, a=0.8), "a"),
        (format_timings(1.0, 1.0), "choice"),  # the only one in the final
    ],
)
def test_winner(times, winner):
    assert _fastest.pick(times, "choice") == winner


# ---- from process to process ----


def test_next_process_times_nothing_again(gpus, folder, restart):
    with autotune():
        gpus.call("k1")
    restart()
    with autotune():
        assert gpus.call("k1") == "faster"
        gpus.call("k2")
    assert gpus.timed() == ["k2"]
    assert _cache.read_tiles("GPU A") == {"k1": "faster", "k2": "faster"}


def test_no_file_is_written_where_nothing_was_found(gpus, folder, restart):
    with autotune():
        pass
    assert not folder.exists()
    with autotune():
        gpus.call()
    (path,) = folder.iterdir()
    before = path.stat().st_mtime_ns, path.stat().st_ino
    restart()
    with autotune():
        gpus.call()
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_load_times_nothing(gpus, restart):
    assert cutlass_fused.load_tuned_tiles() == 0
    with autotune():
        gpus.call("k1")
        gpus.call("k2", device=1)
    restart()
    assert cutlass_fused.load_tuned_tiles() == cutlass_fused.load_tuned_tiles() == 2
    assert gpus.log == []
    assert gpus.tuned == {(0, "k1"): "faster", (2, "k1"): "faster", (1, "k2"): "faster"}


def test_load_reads_again_and_changes_nothing_in_use(gpus):
    with autotune():
        gpus.call("k1")
    _cache.add_tiles("GPU A", {"k1": "last", "k2": "last"})
    with autotune():  # reads only once
        assert (gpus.call("k1"), gpus.call("k2")) == ("faster", CHOICE)
    assert gpus.call("k2") == "faster"
    _cache.add_tiles("GPU A", {"k3": "last"})
    assert cutlass_fused.load_tuned_tiles() == 3
    assert (gpus.call("k1"), gpus.call("k3")) == ("faster", "last")


def test_tiles_of_another_build_are_timed_again(gpus):
    _cache.add_tiles("GPU A", {"k1": "7x7x7B", "k2": "last"})
    assert cutlass_fused.load_tuned_tiles() == 1
    with autotune():
        assert (gpus.call("k1"), gpus.call("k2")) == (CHOICE, "last")
    assert gpus.timed() == ["k1"] and gpus.call("k1") == "faster"
    assert _cache.read_tiles("GPU A") == {"k1": "faster", "k2": "last"}


def test_import_looks_neither_for_gpus_nor_for_the_cache():
    code = """
        import pathlib, torch
        def refuse(*args):
            raise AssertionError
        torch.cuda.is_available = torch.cuda.device_count = torch.cuda.get_device_name = refuse
        pathlib.Path.home = refuse
        import cutlass_fused.nn, cutlass_fused.tuning
    """
    names = {"PYTHONPATH": os.pathsep.join(sys.path), "CUTLASS_FUSED_CACHE_DIR": ""}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(command, env=os.environ | names, check=True, timeout=300)


# ---- what goes wrong ----


def test_exception_in_the_context_passes_and_nothing_is_timed(gpus):
    with pytest.raises(KeyError, match="mine"), autotune():
        gpus.call()
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        autotune({}.__getitem__, "mine")
    assert gpus.log == [] and gpus.call() == CHOICE
    with autotune():
        pass
    assert gpus.log == []


@pytest.mark.parametrize("error", [RuntimeError("CUDA error"), KeyboardInterrupt()], ids=repr)
def test_exception_while_timing(gpus, error):
    """Nothing half timed stays in use; what was found before it is kept."""
    gpus.errors["k2"] = error
    with pytest.raises(type(error)), autotune():
        for key in ("k1", "k2", "k3"):
            gpus.call(key)
    assert gpus.tuned == {(0, "k1"): "faster", (2, "k1"): "faster"}
    assert _cache.read_tiles("GPU A") == {"k1": "faster"}
    gpus.errors.clear()
    with autotune():
        gpus.call("k2")
    assert gpus.call("k2") == "faster"


def test_product_that_does_not_fit_into_memory_is_left_out(gpus):
    gpus.errors["k1"] = torch.cuda.OutOfMemoryError("no more")
    with pytest.warns(RuntimeWarning, match="k1 is not tuned: no more"), autotune():
        gpus.call("k1")
        gpus.call("k2")
    assert (gpus.call("k1"), gpus.call("k2")) == (CHOICE, "faster")
    assert _cache.read_tiles("GPU A") == {"k2": "faster"}


@pytest.mark.parametrize("missing", ["library", "GPU"])
def test_without_library_or_gpu_nothing_happens(monkeypatch, folder, missing):
    monkeypatch.setattr(_tuned._library, "is_loaded", lambda: missing != "library")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: missing != "GPU")
    monkeypatch.setattr(_tuned, "_list_gpus", lambda: pytest.fail("looked for GPUs"))
    with autotune():
        assert torch.equal(functional.linear(X, WEIGHT), autotune(functional.linear, X, WEIGHT))
    assert cutlass_fused.load_tuned_tiles() == 0
    assert not folder.exists()
