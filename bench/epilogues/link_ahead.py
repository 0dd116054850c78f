"""Links the kernels of many cases before they are timed, in processes side by side.

NVRTC compiles one source at a time in a process. What one process has linked, another one finds in
the cache on disk.
"""

import concurrent.futures
import concurrent.futures.process
import multiprocessing
import os
from collections.abc import Sequence

import torch

from .cases import EpilogueCase, build_problem
from .measure import build_step_problem
from .programs import Ours
from .variants import BUILD

MOST_PROCESSES = 12  # each has a context of the GPU, and a weight


def link(case: EpilogueCase) -> str | None:
    """Calls what is ours in a case; why it fails is told when the case is measured."""
    try:
        call_ours(case, "cuda")
    except Exception as error:
        return f"{case}: {type(error).__name__}"
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # the others need memory too
    return None


def call_ours(case: EpilogueCase, device: str) -> None:
    if case.part == "steps":
        problem = build_step_problem(case, device)
        y = Ours(problem.plain, case.setting)(problem.x)
        torch.autograd.grad(y, list(problem.list_asked().values()), problem.grad)
    else:
        problem = build_problem(case, device)
        with torch.no_grad():
            BUILD["ours"](problem)()
            BUILD["identity"](problem)()
    if device == "cuda":
        torch.cuda.synchronize()


class Linker:
    """Processes that link: started when there is something to link, and idle in between."""

    def __init__(self) -> None:
        self.count = min(MOST_PROCESSES, os.cpu_count() or 1)
        self.pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> "Linker":
        return self

    def __exit__(self, *exception) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def link_all(self, cases: Sequence[EpilogueCase]) -> None:
        """Those that cannot be linked are told. One alone is linked by the call that is measured
        first."""
        if min(self.count, len(cases)) < 2:
            return
        if self.pool is None:
            context = multiprocessing.get_context("spawn")
            self.pool = concurrent.futures.ProcessPoolExecutor(self.count, mp_context=context)
        try:
            failed = [text for text in self.pool.map(link, cases) if text]
        except concurrent.futures.process.BrokenProcessPool as error:
            self.count, failed = 1, [str(error)]
        for text in failed:
            print(f"  not linked ahead: {text}", flush=True)
