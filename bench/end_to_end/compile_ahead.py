"""Has the graphs of many cases compiled, and our kernels linked, in several processes side by side.

To compile takes most of the time of this suite, and one processor at a time. What a process has
compiled lies in Inductor's caches on disk, what it has linked in ours. There the process that
measures finds it, and only traces. Nothing runs in these processes while anything is timed.
"""

import concurrent.futures
import contextlib
import functools
import gc
import multiprocessing
import os
from collections.abc import Sequence

import torch

from cutlass_fused import comparison

from ..steps.variants import trace_gradients
from .cases import OF_BACKEND, RealCase, build_problem, list_variants
from .variants import build

# A process holds some gigabytes of the host's memory, and half a gigabyte of the GPU's.
MOST_PROCESSES = 8
COMPILED = (*OF_BACKEND, "compile", "compile_graphs")
AHEAD = ("ours", *COMPILED)


def count_processes() -> int:
    return max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // 2))


def compile_case(device: str, names: Sequence[str], case: RealCase) -> None:
    """One call of each variant. What fails here fails again, and is told, where the case
    is measured."""
    torch.compiler.reset()
    problem = build_problem(case, device)
    asked = list(problem.list_asked())
    with torch.set_grad_enabled(case.takes_gradients), trace_gradients(problem):
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


class Ahead:
    """Compiles a group of cases, those of one model and pass, when the first of it is asked for."""

    def __init__(self, todo: Sequence[RealCase], variants: Sequence[str], processes: int) -> None:
        self.todo, self.variants, self.processes = todo, variants, processes
        self.prepare = functools.cache(self._prepare)

    def __enter__(self) -> "Ahead":
        self.pool = None
        if self.processes > 1:
            spawn = multiprocessing.get_context("spawn")
            self.pool = concurrent.futures.ProcessPoolExecutor(self.processes, spawn)
        return self

    def __exit__(self, *exception) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def _prepare(self, model: str, which: str) -> int:
        """How many cases were compiled."""
        if self.pool is None:
            return 0
        futures = []
        for case in self.todo:
            names = [name for name in list_variants(self.variants, case) if name in AHEAD]
            if (case.model, case.which) == (model, which) and names:
                futures.append(self.pool.submit(compile_case, "cuda", names, case))
        for future in futures:
            with contextlib.suppress(Exception):  # of a process that died
                future.result()
        return len(futures)
