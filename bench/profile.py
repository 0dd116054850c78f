"""python -m bench.profile --model 33 --mode train --precision bf16 --variants ours,eager

runs one model for Nsight Compute, and prints the commands that profile it: each run of a variant
lies in an NVTX range ("ours 0", "ours 1", ...) between cudaProfilerStart and cudaProfilerStop, what
is built and warmed up before lies outside.

python -m bench.profile --table FILE.csv

turns the profiler's CSV into a table: for each kernel the launches per run, the median time, how
busy the tensor pipe, DRAM and L2 are, registers per thread, achieved occupancy, and what limits it.
"""

import argparse
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence

import torch

from cutlass_fused import comparison

from .cases import cases, peers
from .measure import machine
from .measure.options import add_words, parse_count
from .nsight.ncu_csv import InvalidCsv, read_launches
from .nsight.ncu_table import EXTRA, format_table, summarize

WARM_UP_RUNS = 3


def list_commands(options: argparse.Namespace) -> list[str]:
    """Profile, write the CSV, print the table."""
    name = f"profile-{options.model}-{options.mode}-{options.precision}"
    run = ["python", "-m", "bench.profile", "--model", options.model, "--mode", options.mode]
    run += ["--precision", options.precision, "--variants", ",".join(options.variants)]
    run += ["--runs", str(options.runs)]
    # Clocks stay as they are: to lock them takes rights, and the benches do not either.
    profile = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--nvtx"]
    profile += ["--set", "full", "--metrics", EXTRA]
    profile += ["--force-overwrite", "--export", name]
    return [
        shlex.join(profile + run),
        f"ncu --import {name}.ncu-rep --csv --page raw > {name}.csv",
        f"python -m bench.profile --table {name}.csv",
    ]


def run_ranges(runs: Mapping[str, peers.Run], times: int) -> None:
    """Run each variant so many times, each in a range of its own that the profiler sees."""
    for run in runs.values():
        for _ in range(WARM_UP_RUNS):
            run()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for name, run in runs.items():
        for i in range(times):
            with torch.cuda.nvtx.range(f"{name} {i}"):
                run()
            torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def profile(case: cases.Case, variants: Sequence[str], times: int) -> None:
    problem = cases.build_problem(case, "cuda")
    with torch.no_grad(), comparison.set_matmul_precision(problem.setting):
        run_ranges({name: peers.VARIANTS[name](problem.fork()) for name in variants}, times)


def print_table(path: pathlib.Path) -> None:
    try:
        print(format_table(summarize(read_launches(path.read_text()))))
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from None
    except InvalidCsv as error:
        raise SystemExit(f"{path} is no CSV of `ncu --csv --page raw`: {error}") from None


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", choices=cases.MODELS)
    what.add_argument("--table", type=pathlib.Path, metavar="FILE.csv")
    parser.add_argument("--mode", help="default: the first that the model has")
    parser.add_argument("--precision", choices=comparison.PRECISIONS, default="bf16")
    add_words(parser, "--variants", peers.VARIANTS, default=["ours"])
    parser.add_argument("--runs", type=parse_count, default=3, help="of each variant; default: 3")
    options = parser.parse_args(arguments)
    if options.model is not None:
        modes = list(cases.MODELS[options.model].modes)
        options.mode = options.mode or modes[0]
        if options.mode not in modes:
            parser.error(f"model {options.model} is timed in {', '.join(modes)} alone")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    if options.table is not None:
        print_table(options.table)
        return 0
    model = cases.MODELS[options.model]
    case = cases.Case(options.model, options.mode, options.precision, model.m, model.n, model.k)
    for name in options.variants:
        if obstacle := peers.find_obstacle(name, case):
            raise SystemExit(f"{name}: {obstacle}")
    print(f"{case}\n")
    for command in list_commands(options):
        print(f"  {command}\n")
    machine.check_gpu()
    profile(case, options.variants, options.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
