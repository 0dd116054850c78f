"""python -m examples.serve_graphs: answers requests of any number of rows by captured CUDA graphs.

A CUDA graph has one size. So the server captures one for each of a few batch sizes, the buckets. A
batch goes into the smallest bucket that holds it, and the results of the rows behind it are
dropped. While one batch runs others arrive, and the next one takes all that fit. On a CPU the same
server calls the model in place of a graph.

The command serves one of examples/models, plain and fused, and prints how long requests take.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import cutlass_fused

from .models import EXAMPLES

BUCKETS = (1, 4, 16, 64, 256, 1024)
WARM_UP_CALLS = 3  # what first calls do, as to choose kernels, is no part of a graph
# Those with one result.
SERVED = [name for name in EXAMPLES if name != "moe_router"]


class Bucket:
    """A call of the model on `rows` rows, whose memory stays where it is."""

    def __init__(self, model: torch.nn.Module, x: Tensor, pool=None) -> None:
        self.x, self.run, self.graph = x, lambda: model(x), None
        self.y = self._capture(pool) if x.is_cuda else self.run()

    def _capture(self, pool) -> Tensor:
        side, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_CALLS):
                self.run()
            with torch.cuda.graph(self.graph, pool=pool, stream=side):
                y = self.run()
        torch.cuda.current_stream().wait_stream(side)
        return y

    def __call__(self, x: Tensor) -> Tensor:
        """The rows behind those of x are of an earlier batch: no row reads another one."""
        self.x[: len(x)].copy_(x)
        if self.graph is None:
            self.y = self.run()
        else:
            self.graph.replay()
        # The next batch overwrites it.
        return self.y[: len(x)].clone()


class GraphServer:
    """A model in inference behind buckets: server(x) gives model(x).

    Args:
        model: on one device, in inference; its result is one tensor with a row for each row of x.
        example: an x, of any number of rows.
        buckets: the batch sizes. A larger batch is cut into pieces of the largest one.

    Raises ValueError for a model in training, whose rows may depend on each other, for buckets that
    hold nothing, and in a call for an x that is not like the example.
    """

    def __init__(
        self, model: torch.nn.Module, example: Tensor, buckets: Sequence[int] = BUCKETS
    ) -> None:
        if any(module.training for module in model.modules()):
            raise ValueError("GraphServer: model must be in inference: call model.eval()")
        self.example, self.sizes = example[:1], sorted(set(buckets))
        if not self.sizes or self.sizes[0] < 1:
            raise ValueError(f"GraphServer: buckets must be positive sizes, got {list(buckets)}")
        self.pool = torch.cuda.graph_pool_handle() if example.is_cuda else None
        with torch.inference_mode():
            # The largest first: the others find room in what it took, since one runs at a time.
            self.buckets = {
                rows: Bucket(model, example[:1].expand(rows, *example.shape[1:]).clone(), self.pool)
                for rows in reversed(self.sizes)
            }

    @property
    def most_rows(self) -> int:
        return self.sizes[-1]

    def check(self, x: Tensor) -> None:
        expected = (self.example.shape[1:], self.example.dtype, self.example.device)
        found = (x.shape[1:], x.dtype, x.device)
        if found != expected:
            raise ValueError(f"GraphServer: rows of x must be {expected}, got {found}")

    def choose(self, rows: int) -> int:
        """The smallest bucket that holds them."""
        return next(size for size in self.sizes if size >= rows)

    @torch.inference_mode()
    def __call__(self, x: Tensor) -> Tensor:
        self.check(x)
        pieces = x.split(self.most_rows)
        results = [self.buckets[self.choose(len(piece))](piece) for piece in pieces]
        return results[0] if len(results) == 1 else torch.cat(results)


class Request(NamedTuple):
    """x: written before the request was sent; on another stream, and that has been waited for."""

    x: Tensor
    answer: concurrent.futures.Future


def serve(server: GraphServer, requests: "queue.SimpleQueue[Request | None]") -> None:
    """Answers the requests of a queue in their order, until None comes. A batch holds the first of
    those that wait, and as many more as the largest bucket takes."""
    waiting = collections.deque([requests.get()])
    while waiting[0] is not None:
        waiting.extend(take_all(requests))
        answer(server, take_batch(waiting, server.most_rows))
        if not waiting:
            waiting.append(requests.get())


def take_all(requests: queue.SimpleQueue) -> Iterator[Request | None]:
    """What has come, without waiting."""
    with contextlib.suppress(queue.Empty):
        while True:
            yield requests.get_nowait()


def take_batch(waiting: "collections.deque[Request | None]", most_rows: int) -> list[Request]:
    batch = [waiting.popleft()]
    rows = count_rows(batch[0].x)
    while waiting and waiting[0] is not None and rows + count_rows(waiting[0].x) <= most_rows:
        batch.append(waiting.popleft())
        rows += count_rows(batch[-1].x)
    return batch


def count_rows(x: Tensor) -> int:
    """Also of one without a dimension, which is to be refused."""
    return len(x) if x.dim() else 1


def answer(server: GraphServer, batch: Iterable[Request]) -> None:
    """A request that is refused or was cancelled does not spoil the others, and whatever goes wrong
    is told to those who wait: the server goes on."""
    taken = []
    for request in batch:
        if not request.answer.set_running_or_notify_cancel():
            continue
        try:
            server.check(request.x)
            taken.append(request)
        except ValueError as reason:
            request.answer.set_exception(reason)
    if not taken:
        return
    try:
        y = server(torch.cat([request.x for request in taken]))
        wait_for(y)  # who reads an answer may be on another stream
    except Exception as reason:
        for request in taken:
            request.answer.set_exception(reason)
        return
    for request, part in zip(taken, y.split([len(r.x) for r in taken]), strict=True):
        request.answer.set_result(part)


def wait_for(y: Tensor) -> None:
    if y.is_cuda:
        torch.cuda.current_stream().synchronize()


# ---- the command ----


def time_each(run: Callable[[Tensor], Tensor], batches: Sequence[Tensor]) -> float:
    """The median microseconds of one request after another."""
    times = []
    with torch.inference_mode():
        for x in batches:
            start = time.perf_counter()
            wait_for(run(x))
            times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times)


def time_all(server: GraphServer, batches: Sequence[Tensor]) -> float:
    """Requests a second, where all wait at once."""
    requests = queue.SimpleQueue()
    thread = threading.Thread(target=serve, args=(server, requests))
    thread.start()
    start = time.perf_counter()
    asked = [Request(x, concurrent.futures.Future()) for x in batches]
    for request in asked:
        requests.put(request)
    for request in asked:
        request.answer.result()
    seconds = time.perf_counter() - start
    requests.put(None)
    thread.join()
    return len(batches) / seconds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.serve_graphs", description=__doc__)
    parser.add_argument("--model", choices=SERVED, default="dlrm_top")
    parser.add_argument("--precision", choices=("ieee", "tf32"), default="ieee")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--most-rows", type=int, default=64, help="of a request")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    example = EXAMPLES[options.model]
    model = example.build().eval().to(options.device)
    rows = torch.randint(1, options.most_rows + 1, (options.requests,)).tolist()
    batches = [example.draw(count).to(options.device) for count in rows]
    print(f"{options.model}, {options.requests} requests of 1 to {options.most_rows} rows")
    print(f"{'':8}{'call, us':>12}{'server, us':>12}{'all at once, requests/s':>26}")
    for name in ("plain", "fused"):
        if name == "fused":
            cutlass_fused.fuse(model, precision=options.precision)
            cutlass_fused.prepare(model)  # or a graph splits fp32 weights in each run
        server = GraphServer(model, batches[0], BUCKETS)
        for run in (model, server):  # what first calls do is not timed
            time_each(run, batches[:10])
        cells = time_each(model, batches), time_each(server, batches), time_all(server, batches)
        print(f"{name:8}{cells[0]:12.1f}{cells[1]:12.1f}{cells[2]:26.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
