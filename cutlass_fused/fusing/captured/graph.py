"""One call of a model as a CUDA graph."""

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .watched import Unfit

# Behind these, what first calls on a stream do is done, as to get workspaces.
_WARM_UP_CALLS = 2
# One capture at a time: they share a stream.
_capturing = threading.Lock()
_of_thread = threading.local()
_CONSTANTS = (type(None), bool, int, float, str)


class CudaGraph:
    """run(), to be repeated on the same memory. `pool`: of graphs that never run at once."""

    def __init__(self, device: torch.device, pool) -> None:
        self._device, self._pool = device, pool
        self._graph = torch.cuda.CUDAGraph()

    @staticmethod
    def make_pool():
        return torch.cuda.graph_pool_handle()

    def capture(self, warm_up: Callable, run: Callable):
        """What run() gives, which the first replay writes. warm_up() is called in front of it."""
        stream = _get_stream(self._device)
        with torch.cuda.device(self._device):
            stream.wait_stream(torch.cuda.current_stream())
            try:
                # A capture that fails leaves its stream as the current one; this `with` does not.
                with torch.cuda.stream(stream):
                    warm_up()
                    return self._capture_on(stream, run)
            finally:
                torch.cuda.current_stream().wait_stream(stream)

    def _capture_on(self, stream: torch.cuda.Stream, run: Callable):
        # Other threads may go on to allocate.
        options = {"stream": stream, "capture_error_mode": "thread_local"}
        flag = torch.zeros((), device=self._device)
        try:
            with torch.cuda.graph(self._graph, pool=self._pool, **options):
                return run()
        except RuntimeError:
            # PyTorch (2.11) then ends neither the allocations for the pool, nor the state of the
            # random numbers, which would refuse all later draws. An empty capture ends that.
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
            with torch.cuda.stream(stream), torch.cuda.graph(torch.cuda.CUDAGraph(), **options):
                flag.zero_()
            raise

    def replay(self) -> None:
        self._graph.replay()


def is_within_capture() -> bool:
    """Whether this thread captures a call, or warms one up. Models within it make no graphs."""
    return getattr(_of_thread, "is_capturing", False)


@contextlib.contextmanager
def _capture_alone():
    with _capturing:
        _of_thread.is_capturing = True
        try:
            yield
        finally:
            _of_thread.is_capturing = False


@functools.cache
def _get_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures: cuBLAS keeps a workspace for each stream that it has seen."""
    return torch.cuda.Stream(device)


class CapturedCall:
    """A captured run(args, kwargs) of these shapes. `captured(args, kwargs)` copies the tensors to
    where the graph reads them, replays it, and gives copies of its results.

    Raises Unfit where the call cannot be captured, and what run raises.
    """

    def __init__(self, run: Callable, args, kwargs: dict, watched, graph: CudaGraph) -> None:
        self._inputs: list[Tensor] = []
        self._graph = graph
        given = [self._take(each) for each in args]
        named = {name: self._take(each) for name, each in kwargs.items()}

        def warm_up():
            versions = [each._version for each in self._inputs]
            for _ in range(_WARM_UP_CALLS):
                run(*given, **named)
            if [each._version for each in self._inputs] != versions:
                raise Unfit("its forward writes to an input")

        with _capture_alone():
            try:
                self._fill(args, kwargs)
                y = graph.capture(warm_up, functools.partial(run, *given, **named))
            except RuntimeError as error:
                raise Unfit(f"it cannot be captured: {_first_line(error)}") from error
        self._leaves, self._shape = pytree.tree_flatten(y)
        self._check_results(watched)

    def __call__(self, args, kwargs: dict):
        self._fill(args, kwargs)
        self._graph.replay()
        # The next replay overwrites them.
        if self._shape.is_leaf():
            return self._leaves[0].clone()
        leaves = [e.clone() if isinstance(e, Tensor) else e for e in self._leaves]
        return pytree.tree_unflatten(leaves, self._shape)

    def use_on(self, stream: "torch.cuda.Stream") -> None:
        """Its inputs are not given to others before what this stream does with them."""
        for each in self._inputs:
            each.record_stream(stream)

    def _take(self, value):
        if not isinstance(value, Tensor):
            return value
        shape, stride = value.shape, value.stride()
        own = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
        self._inputs.append(own)
        return own

    def _fill(self, args: Sequence, kwargs: dict) -> None:
        given = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        for ours, theirs in zip(self._inputs, given, strict=True):
            ours.copy_(theirs)

    def _check_results(self, watched) -> None:
        taken = {each.untyped_storage().data_ptr() for each in self._inputs} | watched.storages
        tensors = [each for each in self._leaves if isinstance(each, Tensor)]
        if not tensors or (self._shape.is_leaf() and len(tensors) != 1):
            raise Unfit("its result holds no tensor")
        for each in self._leaves:
            if not isinstance(each, (Tensor, *_CONSTANTS)):
                raise Unfit(f"its result holds a {type(each).__name__}")
        for each in tensors:
            if type(each) is not Tensor or each.device != watched.device:
                raise Unfit(
                    f"its result holds a tensor of type {type(each).__name__} on {each.device}"
                )
            if each.untyped_storage().data_ptr() in taken:
                raise Unfit("its result is a view of an input, a parameter or a buffer")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
