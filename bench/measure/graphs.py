"""Calls captured into CUDA graphs: a replay takes the GPU's time, and hardly any of the host's."""

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# What is done on first calls, such as choosing a kernel or getting a workspace, is done by then.
WARM_UP_CALLS = 3

Result = Tensor | Sequence[Tensor]


class Replay:
    """A captured call. Every run overwrites the result of the one before, and returns it."""

    def __init__(self, graph: torch.cuda.CUDAGraph, run: Callable[[], Result], y: Result) -> None:
        # The graph keeps addresses only: `run` owns what it reads, and workspaces.
        self.graph, self.run, self.y = graph, run, y

    def __call__(self) -> Result:
        self.graph.replay()
        return self.y

    def free(self) -> None:
        self.graph.reset()
        self.graph = self.run = self.y = None


class Graphs:
    """Captures calls; at the end of the `with` their graphs and the memory of these are freed."""

    def __init__(self) -> None:
        self.stream, self.replays = get_stream(), []

    def __enter__(self) -> "Graphs":
        return self

    def __exit__(self, *exception) -> None:
        torch.cuda.synchronize()
        for replay in self.replays:
            replay.free()
        self.replays.clear()
        torch.cuda.empty_cache()

    def capture(self, run: Callable[[], Result]) -> Replay:
        """`run` is called a few times before, and must find there all that it needs from the host.

        Its result is NaN until the graph has written it.
        """
        self.stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        # A capture that fails leaves its stream as the current one; this `with` does not.
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP_CALLS):
                run()
            with torch.cuda.graph(graph, stream=self.stream):
                y = run()
        torch.cuda.current_stream().wait_stream(self.stream)
        for part in y if isinstance(y, (tuple, list)) else (y,):
            part.fill_(math.nan)
        self.replays.append(Replay(graph, run, y))
        return self.replays[-1]


@functools.cache
def get_stream() -> torch.cuda.Stream:
    """One for all captures: cuBLAS keeps a workspace for each stream that it has seen."""
    return torch.cuda.Stream()
