"""python -m bench.epilogues.first_calls CORES PROGRAM:PRECISION:MxNxK ...: a process's first calls.

CORES, such as 0,1, are those that it may use. It prints a line of JSON for each. "ms" is the time
on the host's clock from the call until the GPU has the result, where PyTorch has traced the
function already; "wall_ms" is the same and the tracing. "kernels" is how many were linked: the
files that the call adds to CUTLASS_FUSED_CACHE_DIR. The product itself has run before, so that what
any first call costs in a process is not in the time.
"""

import concurrent.futures
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import torch

from cutlass_fused import functional

from ..measure.machine import ROOT
from ..measure.options import parse_sizes
from .cases import EpilogueCase, build_problem
from .programs import Ours, Plain
from .variants import compute_truth, measure_error

FOLDER = "CUTLASS_FUSED_CACHE_DIR"
CORES = 2  # of each process
CACHED_CALLS = 3  # of each, in as many processes
SECONDS = 120  # at most for a process

Call = dict[str, float]


def count_files() -> int:
    return sum(path.is_file() for path in pathlib.Path(os.environ[FOLDER]).rglob("*"))


def trace(case: EpilogueCase) -> float:
    """The seconds that it takes to trace the program, for operands of the same kinds."""
    plain = Plain(case.program, 3, 5, 2)
    start = time.perf_counter()
    Ours(plain, case.setting)(torch.ones(3, 2))
    return time.perf_counter() - start


@torch.no_grad()
def call_first(case: EpilogueCase, device: str) -> Call:
    """To be called once in a process for each case."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    problem = build_problem(case, device)
    gemm, ours = problem.plain.gemm, Ours(problem.plain, case.setting)
    functional.linear(problem.x, gemm.weight, gemm.bias, precision=case.setting)
    traced, before = trace(case), count_files()
    synchronize()
    start = time.perf_counter()
    y = ours(problem.x)
    synchronize()
    seconds = time.perf_counter() - start
    kernels = count_files() - before
    error = measure_error("ours", y, compute_truth(problem, False), case.precision)
    times = {"ms": 1e3 * seconds, "wall_ms": 1e3 * (seconds + traced)}
    return {**times, "rel_err": error, "kernels": kernels}


def run_process(cases: Sequence[EpilogueCase], folder: str, cores: Sequence[int]) -> list[Call]:
    """What one process prints, on these cores and with this cache."""
    words = [f"{case.program}:{case.precision}:{case.m}x{case.n}x{case.k}" for case in cases]
    done = subprocess.run(
        [sys.executable, "-m", "bench.epilogues.first_calls", ",".join(map(str, cores)), *words],
        cwd=ROOT,
        env=os.environ | {FOLDER: folder},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode:
        names = ", ".join(map(str, cases))
        raise RuntimeError(f"{names} fails: {done.stderr.strip()[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines()[-len(cases) :]]


def link_all(
    cases: Sequence[EpilogueCase], folder: pathlib.Path
) -> dict[EpilogueCase, Call | Exception]:
    """The call of each that links, in a process, and a folder in this one, of its own. As many at
    the same time as each can have cores."""
    cores = sorted(os.sched_getaffinity(0))
    groups: queue.SimpleQueue = queue.SimpleQueue()
    count = max(1, len(cores) // CORES)
    for index in range(count):
        groups.put(cores[index * CORES : (index + 1) * CORES] or cores)

    def link(index: int):
        own = groups.get()
        try:
            return run_process([cases[index]], str(folder / str(index)), own)[0]
        except Exception as error:
            return error
        finally:
            groups.put(own)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return dict(zip(cases, pool.map(link, range(len(cases))), strict=True))


def measure_all(
    cases: Sequence[EpilogueCase],
) -> dict[EpilogueCase, dict[str, list[Call]] | Exception]:
    """By variant: one call that links, then calls of later processes that find what it has made.

    Nothing else runs beside the later ones, each of which calls all: milliseconds are to be told.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        first = link_all(cases, folder)
        linked = [case for case in cases if not isinstance(first[case], Exception)]
        for index, case in enumerate(cases):
            # One whose kernels come with the library makes no folder.
            if case in linked and (folder / str(index)).exists():
                shutil.copytree(folder / str(index), folder / "all", dirs_exist_ok=True)
        cores = sorted(os.sched_getaffinity(0))[:CORES]
        later = [
            run_process(linked, str(folder / "all"), cores)
            for _ in range(CACHED_CALLS if linked else 0)
        ]
    found: dict[EpilogueCase, dict[str, list[Call]] | Exception] = {**first}
    for case, *cached in zip(linked, *later, strict=True):
        found[case] = {"first_call": [first[case]], "cached_call": cached}
    return found


def main(arguments: Sequence[str]) -> int:
    cores, *words = arguments
    os.sched_setaffinity(0, map(int, cores.split(",")))
    for word in words:
        program, precision, size = word.split(":")
        case = EpilogueCase("first", program, precision, *parse_sizes(size)[0])
        print(json.dumps(call_first(case, "cuda")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
