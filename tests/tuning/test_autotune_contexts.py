"""Contexts of autotune within and beside each other, and where they must do nothing. The GPUs are
fakes."""

import threading

import fake_gpus
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from cutlass_fused import autotune, functional
from cutlass_fused.tuning import _tuned

X, WEIGHT = torch.randn(4, 8), torch.randn(5, 8)


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpus.install(monkeypatch) as gpus:
        yield gpus


# ---- contexts within contexts, and beside each other ----


def test_nested_contexts(gpus):
    with autotune():
        gpus.call("k1")
        with autotune():
            gpus.call("k2")
        assert gpus.timed() == ["k1", "k2"]
        gpus.call("k3")
    assert gpus.timed() == ["k1", "k2", "k3"]


def test_one_context_may_be_entered_again(gpus):
    context = autotune()
    with context:
        with context:
            gpus.call("k1")
        gpus.call("k2")
    with context:
        gpus.call("k3")
    assert gpus.timed() == ["k1", "k2", "k3"]


def test_exception_in_an_inner_context_leaves_the_outer_one_what_was_met(gpus):
    with autotune():
        with pytest.raises(KeyError), autotune():
            gpus.call("k1")
            raise KeyError
        assert gpus.log == []
    assert gpus.timed() == ["k1"]


def test_contexts_of_two_threads(gpus):
    """The first to end times what both have met; the other one goes on."""
    entered, ended = threading.Event(), threading.Event()

    def other():
        with autotune():
            gpus.call("k2")
            entered.set()
            assert ended.wait(10)
            gpus.call("k3")

    thread = threading.Thread(target=other)
    with autotune():
        gpus.call("k1")
        thread.start()
        assert entered.wait(10)
    assert gpus.timed() == ["k1", "k2"]
    assert gpus.records
    ended.set()
    thread.join()
    assert gpus.timed() == ["k1", "k2", "k3"]


def test_threads_do_not_time_at_once(gpus):
    """Nor one product twice, though both have met it."""
    busy, overlaps = threading.Lock(), []
    barrier = threading.Barrier(4, timeout=10)

    def while_timing(key):
        overlaps.append(not busy.acquire(blocking=False))
        threading.Event().wait(0.01)
        busy.release()

    def run(i):
        with autotune():
            barrier.wait()
            gpus.call(f"k{i}")
            gpus.call("shared")
            barrier.wait()

    gpus.while_timing = while_timing
    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(overlaps) == 2 * 5 and not any(overlaps)
    assert sorted(gpus.timed()) == ["k0", "k1", "k2", "k3", "shared"]


# ---- where nothing may be timed ----


def test_context_that_ends_within_a_capture(gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with autotune():
        gpus.call()
    assert gpus.log == []


def test_context_that_ends_within_a_transform_or_mode(gpus):
    def run(x):
        with autotune():
            gpus.call()
            return functional.linear(x, WEIGHT)

    torch.func.vmap(run)(X[None])
    torch.func.grad(lambda x: run(x).sum())(X)
    make_fx(run)(X)
    torch.jit.trace(run, (X,), check_trace=False)  # the check is another, plain call
    with FlopCounterMode(display=False):
        run(X)
    assert gpus.log == []
    run(X)
    assert gpus.timed() == ["k1"]


def linear_in_context(x):
    with autotune():
        return functional.linear(x, WEIGHT)


def linear_by_call(x):
    return autotune(functional.linear, x, WEIGHT)


@pytest.mark.parametrize("function", [linear_in_context, linear_by_call])
def test_context_within_what_is_compiled(gpus, monkeypatch, function):
    """It is traced, without a break of the graph, and does nothing."""
    monkeypatch.setattr(_tuned, "can_tune", lambda: pytest.fail("was entered"))

    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), functional.linear(X, WEIGHT))
    for strict in (True, False):
        program = torch.export.export(Model(), (X,), strict=strict)
        assert torch.equal(program.module()(X), functional.linear(X, WEIGHT))


def test_what_is_compiled_within_a_context(gpus):
    """Another graph than outside is not made, and an error not raised."""
    frames = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: functional.linear(x, WEIGHT), backend=frames, fullgraph=True)
    for _ in range(2):
        with autotune():
            assert torch.equal(compiled(X), functional.linear(X, WEIGHT))
        compiled(X)
    assert frames.frame_count == 1
    assert gpus.log == []
