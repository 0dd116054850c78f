"""The capture into CUDA graphs, on a model of torch.cuda: streams, warm-up, what is freed."""

import contextlib
import types

import pytest

from bench.measure import graphs
from bench.measure.graphs import WARM_UP_CALLS, Graphs


class Cuda:
    """Takes the place of torch.cuda: runs what it is given, and logs it with the current stream."""

    def __init__(self):
        self.current, self.log, self.fails = "default", [], False
        self.Stream = lambda: types.SimpleNamespace(
            name="side", wait_stream=lambda other: self.log.append("side waits")
        )
        self.CUDAGraph = lambda: Graph(self)

    def current_stream(self):
        wait = types.SimpleNamespace(wait_stream=lambda other: self.log.append("default waits"))
        assert self.current == "default"
        return wait

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream.name
        try:
            yield
        finally:
            self.current = before

    @contextlib.contextmanager
    def graph(self, graph, stream):
        """Captures as PyTorch does, which stays on its stream where the end of a capture fails."""
        self.current = stream.name
        self.log.append("begin")
        yield
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.log.append("end")
        self.current = "side"

    def synchronize(self):
        self.log.append("synchronize")

    def empty_cache(self):
        self.log.append("empty cache")


class Graph:
    def __init__(self, cuda):
        self.cuda = cuda

    def replay(self):
        self.cuda.log.append("replay")

    def reset(self):
        self.cuda.log.append("reset")


class Result:
    def __init__(self, cuda):
        self.fill_ = lambda value: cuda.log.append(f"fill {value}")


@pytest.fixture
def cuda(monkeypatch):
    cuda = Cuda()
    monkeypatch.setattr(graphs.torch, "cuda", cuda)
    graphs.get_stream.cache_clear()
    yield cuda
    graphs.get_stream.cache_clear()


def make_run(cuda):
    def run():
        cuda.log.append(f"run on {cuda.current}")
        return Result(cuda)

    return run


WARM_UP = ["side waits", *["run on side"] * WARM_UP_CALLS]
CAPTURE = ["begin", "run on side", "end", "default waits", "fill nan"]


def test_call_is_captured_after_a_warm_up_on_the_same_stream(cuda):
    with Graphs() as captured:
        replay = captured.capture(make_run(cuda))
        assert cuda.log == WARM_UP + CAPTURE
        cuda.log.clear()
        assert replay() is replay() is replay.y
        assert cuda.log == ["replay", "replay"]


def test_several_results_are_captured(cuda):
    results = Result(cuda), Result(cuda)
    with Graphs() as captured:
        replay = captured.capture(lambda: results)
        assert cuda.log[-3:] == ["default waits", "fill nan", "fill nan"]
        assert replay() is results


@pytest.mark.parametrize("fails", [False, True])
def test_graphs_are_freed_at_the_end_whatever_happens(fails, cuda):
    raised = pytest.raises(KeyboardInterrupt) if fails else contextlib.nullcontext()
    with raised, Graphs() as captured:
        replays = [captured.capture(make_run(cuda)) for _ in range(2)]
        cuda.log.clear()
        if fails:
            raise KeyboardInterrupt
    # Not before the GPU is done with them.
    assert cuda.log == ["synchronize", "reset", "reset", "empty cache"]
    # Results, inputs and workspaces: what the caller still holds keeps no memory.
    assert {(replay.graph, replay.run, replay.y) for replay in replays} == {(None, None, None)}


def test_failed_capture_is_told_and_leaves_the_stream(cuda):
    with Graphs() as captured:
        cuda.fails = True
        with pytest.raises(RuntimeError, match="not permitted"):
            captured.capture(make_run(cuda))
        assert cuda.current == "default" and captured.replays == []
        cuda.fails = False
        cuda.log.clear()
        captured.capture(make_run(cuda))
        assert cuda.log == WARM_UP + CAPTURE


def test_all_captures_share_a_stream(cuda):
    with Graphs() as one, Graphs() as other:
        assert one.stream is other.stream
