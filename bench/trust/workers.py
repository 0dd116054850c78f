"""Processes that each do one thing at a time, and may die over it."""

import collections
import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple


class Died(NamedTuple):
    """In place of a result: the process ended, or took too long and was ended."""

    reason: str


class _Worker:
    def __init__(self, context, target: Callable, arguments: tuple) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.number: int | None = None
        self.begin = 0.0

    def give(self, number: int) -> None:
        self.number, self.begin = number, time.monotonic()
        self.pipe.send(number)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_each(
    numbers: Iterable[int],
    target: Callable,
    arguments: tuple,
    processes: int,
    seconds: float,
    most_seconds_each: float,
) -> Iterator[tuple[int, Any]]:
    """Yields (number, result or Died) until all numbers are done or the time is up.

    target(pipe, *arguments) runs in a process: it receives numbers, and sends of each the result
    and whether it goes on. It does not where what it does next could not be relied on, as behind an
    error of CUDA; another process then takes its place.
    """
    end = time.monotonic() + seconds
    context = multiprocessing.get_context("spawn")
    left = collections.deque(numbers)
    workers = [_Worker(context, target, arguments) for _ in range(min(processes, len(left)))]
    try:
        while left or any(worker.number is not None for worker in workers):
            is_over = time.monotonic() > end
            for worker in workers:
                if worker.number is None and left and not is_over:
                    worker.give(left.popleft())
            busy = [worker for worker in workers if worker.number is not None]
            if not busy:
                return
            ready = multiprocessing.connection.wait([worker.pipe for worker in busy], 1.0)
            for i, worker in enumerate(workers):
                if worker.number is None:
                    continue
                if worker.pipe in ready:
                    try:
                        result, goes_on = worker.pipe.recv()
                    except (EOFError, OSError):
                        worker.process.join(5)
                        reason = f"the process ended with {worker.process.exitcode}"
                        result, goes_on = Died(reason), False
                elif time.monotonic() - worker.begin > most_seconds_each:
                    reason = f"no result after {most_seconds_each:.0f} seconds"
                    result, goes_on = Died(reason), False
                else:
                    continue
                number, worker.number = worker.number, None
                if not goes_on:
                    worker.end()
                    workers[i] = _Worker(context, target, arguments)
                yield number, result
    finally:
        for worker in workers:
            worker.end()
