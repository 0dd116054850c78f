"""Has the graphs of many cases compiled, and our kernels linked, in several processes side by side.

To compile takes most of the time of this suite, and one processor at a time. What a process has
compiled lies in Inductor's caches on disk, what it has linked in ours. There the process that
measures finds it, and only traces. Nothing runs in these processes while anything is timed.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence

import torch

from cutlass_fused import comparison

from ..measure.options import parse_count
from ..steps.cases import StepProblem
from ..steps.variants import trace_gradients
from .cases import OF_BACKEND, RealCase, build_problem, list_variants
from .variants import build

# A process holds some gigabytes of the host's memory, and half a gigabyte of the GPU's.
MOST_PROCESSES = 8
COMPILED = (*OF_BACKEND, "compile", "compile_graphs")
AHEAD = ("ours", *COMPILED)


def count_processes() -> int:
    return max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // 2))


def add_processes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes",
        type=parse_count,
        default=count_processes(),
        help="that compile ahead, side by side; 1: each case is compiled where it is measured",
    )


def compile_case(device: str, names: Sequence[str], case: RealCase) -> None:
    compile_problem(device, names, functools.partial(build_problem, case), case.takes_gradients)


def compile_problem(
    device: str,
    names: Sequence[str],
    build_problem: Callable[[str], StepProblem],
    takes_gradients: bool,
) -> None:
    """One call of each variant. What fails here fails again, and is told, where the case
    is measured."""
    torch.compiler.reset()
    problem = build_problem(device)
    asked = list(problem.list_asked())
    with torch.set_grad_enabled(takes_gradients), trace_gradients(problem):
        with comparison.set_matmul_precision(problem.setting):
            for name in names:
                with contextlib.suppress(Exception):
                    build(name, problem.fork(), names=asked)()
    # The process that measures needs the GPU's memory.
    del problem
    torch.compiler.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def group_real(case: RealCase) -> tuple:
    """Cases of one group follow each other."""
    return case.model, case.which


class Ahead:
    """Compiles a group of cases when the first of it is asked for.

    compile_case(device, variants, case) runs in other processes, which import it by its name.
    """

    def __init__(
        self,
        todo: Sequence,
        variants: Sequence[str],
        processes: int,
        compile_case: Callable = compile_case,
        find_group: Callable = group_real,
    ) -> None:
        self.todo, self.variants, self.processes = todo, variants, processes
        self.compile_case, self.find_group = compile_case, find_group
        self._prepare_group = functools.cache(self._prepare)

    def __enter__(self) -> "Ahead":
        self.pool = None
        if self.processes > 1:
            spawn = multiprocessing.get_context("spawn")
            self.pool = concurrent.futures.ProcessPoolExecutor(self.processes, spawn)
        return self

    def __exit__(self, *exception) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def prepare(self, case) -> None:
        """Has the cases of its group compiled, of which it is told where that takes long."""
        start, group = time.perf_counter(), self.find_group(case)
        if count := self._prepare_group(group):
            seconds = time.perf_counter() - start
            if seconds > 1:
                told = ", ".join(map(str, group))
                print(f"  {told}: {count} cases compiled in {seconds:.0f} s")

    def _prepare(self, group: tuple) -> int:
        """How many cases were compiled."""
        if self.pool is None:
            return 0
        futures = []
        for case in self.todo:
            names = [name for name in list_variants(self.variants, case) if name in AHEAD]
            if self.find_group(case) == group and names:
                futures.append(self.pool.submit(self.compile_case, "cuda", names, case))
        for future in futures:
            with contextlib.suppress(Exception):  # of a process that died
                future.result()
        return len(futures)
