"""python -m bench.epilogues.first_calls PROGRAM PRECISION MxNxK CORES: a process's first call.

CORES, such as 0,1, are those that it may use. It prints a line of JSON. "ms" is the time on the
host's clock from the call until the GPU has the result, where PyTorch has traced the function
already; "wall_ms" is the same and the tracing. "kernels" is how many were linked: the files that
the call adds to CUTLASS_FUSED_CACHE_DIR. The product itself has run before, so that what any first
call costs in a process is not in the time.
"""

import concurrent.futures
import json
import os
import pathlib
import queue
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
CACHED_CALLS = 3  # each in a process
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
    """To be called once in a process."""
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


def run_process(case: EpilogueCase, folder: str, cores: Sequence[int]) -> Call:
    """What one process prints, on these cores and with this cache."""
    words = case.program, case.precision, f"{case.m}x{case.n}x{case.k}", ",".join(map(str, cores))
    done = subprocess.run(
        [sys.executable, "-m", "bench.epilogues.first_calls", *words],
        cwd=ROOT,
        env=os.environ | {FOLDER: folder},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{case} fails: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_both(case: EpilogueCase, cores: Sequence[int]) -> dict[str, list[Call]]:
    """By variant: one call that links, then calls of other processes that find its cache."""
    with tempfile.TemporaryDirectory() as folder:
        first = run_process(case, folder, cores)
        cached = [run_process(case, folder, cores) for _ in range(CACHED_CALLS)]
    return {"first_call": [first], "cached_call": cached}


def measure_all(
    cases: Sequence[EpilogueCase],
) -> dict[EpilogueCase, dict[str, list[Call]] | Exception]:
    """As many at the same time as each can have cores of its own."""
    cores = sorted(os.sched_getaffinity(0))
    groups: queue.SimpleQueue = queue.SimpleQueue()
    count = max(1, len(cores) // CORES)
    for index in range(count):
        groups.put(cores[index * CORES : (index + 1) * CORES] or cores)

    def measure(case: EpilogueCase):
        own = groups.get()
        try:
            return measure_both(case, own)
        except Exception as error:
            return error
        finally:
            groups.put(own)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return dict(zip(cases, pool.map(measure, cases), strict=True))


def main(arguments: Sequence[str]) -> int:
    program, precision, size, cores = arguments
    os.sched_setaffinity(0, map(int, cores.split(",")))
    case = EpilogueCase("first", program, precision, *parse_sizes(size)[0])
    print(json.dumps(call_first(case, "cuda")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
