"""python -m bench.builds --before FOLDER: two builds of cutlass_fused against each other.

FOLDER holds the package cutlass_fused of another commit, with its library; the other build is that
of this checkout. Each runs in a process of its own, and the two are timed in turns: in every round
one after the other, in an order that alternates. What counts is the ratio of the two medians of a
round, and of those the median: heat and power move both. Calls of a few microseconds differ by up
to a tenth from one process to the next, also of one build: hence several pairs of processes.

The cases are those of the suites models, memory_bound, host and sweep, and training at shapes that
people have, less peers. Times are of CUDA graphs on cold caches; those of host are the host's.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

from .cases.layers import LAYERS
from .cases.layers import SHAPES as LAYER_SHAPES
from .cases.sweep_cases import SPREAD
from .measure.machine import ROOT

WORKER = pathlib.Path(__file__).with_name("build_worker.py")
PRECISIONS = ("ieee", "tf32", "bf16", "fp16")
MODEL_SHAPES = {
    "12": (1024, 8192, 8192),
    "33": (1024, 8192, 8192),
    "39": (16384, 4096, 4096),
    "84": (1024, 8192, 8192),
}
# Training where most people are: few rows, and layers of 64 to 1024.
LAYERS_OF_USERS = (
    (16, 512, 512),
    (64, 512, 512),
    (300, 1024, 1024),
    (4096, 64, 64),
    (4096, 1024, 1024),
    (16384, 1024, 256),
    (16384, 256, 64),
)
# Six more than the two dozen at which every variant of the sweep is timed.
SWEPT = (*SPREAD, *((256, n, k) for n, k in ((1024, 1024), (4096, 512), (4096, 4096))))
SWEPT += tuple((4096, n, k) for n, k in ((1024, 1024), (4096, 512), (1001, 2048)))
FIRST = 1  # samples of a turn that are dropped: the GPU has just come from the other process


def list_cases(suites: list[str]) -> list[dict]:
    """The cases as dictionaries: they travel to the workers as JSON."""
    cases = []

    def add(suite, model, mode, precision, shape):
        m, n, k = shape
        case = {"suite": suite, "model": model, "mode": mode, "precision": precision}
        cases.append({**case, "M": m, "N": n, "K": k})

    for precision in PRECISIONS:
        for model, shape in MODEL_SHAPES.items():
            for mode in ("eval",) if model == "12" else ("train", "eval"):
                add("models", model, mode, precision, shape)
                if model != "39":
                    add("host", model, mode, precision, (64, 64, 64))
        for model in ("33", "84"):
            for shape in LAYERS_OF_USERS:
                add("training", model, "train", precision, shape)
    for model, layer in LAYERS.items():
        for precision in ("ieee", "bf16"):
            for m, n in LAYER_SHAPES:
                add("memory_bound", model, layer.mode, precision, (m, n, 0))
    for shape in SWEPT:
        add("sweep", "12", "eval", "bf16", shape)
    return [case for case in cases if case["suite"] in suites]


class Build:
    """A process with one build."""

    def __init__(self, folder: pathlib.Path) -> None:
        command = [sys.executable, str(WORKER), str(folder.resolve())]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        package = pathlib.Path(self._read()["package"]).parent
        if package != folder.resolve() / "cutlass_fused":
            raise SystemExit(f"{folder} holds no package cutlass_fused: {package} was imported")

    def ask(self, **request) -> dict:
        print(json.dumps(request), file=self.process.stdin)
        return self._read()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended: {self.process.args}")
        return json.loads(line)


def time_case(pairs: list[dict[str, Build]], case: dict, rounds: int, samples: int) -> dict:
    """Its row: medians, and the ratio after / before, the geometric mean of those of the pairs."""
    row, ratios = dict(case), []
    for builds in pairs:
        replies = {name: build.ask(prepare=case) for name, build in builds.items()}
        errors = {name: reply["error"] for name, reply in replies.items() if "error" in reply}
        if errors:
            row["error"] = errors
        else:
            before, after = (reply["norm"] for reply in replies.values())
            row["norms"] = after / before
            medians = time_pair(builds, case, rounds, samples)
            row |= {name: statistics.median(values) for name, values in medians.items()}
            both = zip(*medians.values(), strict=True)
            ratios.append(statistics.median(after / before for before, after in both))
        for build in builds.values():
            build.ask(drop=True)
        if errors:
            return row
    return row | {"ratio": find_mean(ratios), "ratios": ratios}


def time_pair(builds: dict[str, Build], case: dict, rounds: int, samples: int) -> dict:
    """The median of each round; of a host's times the least, to which all else only adds."""
    medians = {name: [] for name in builds}
    choose = min if case["suite"] == "host" else statistics.median
    for index in range(rounds):
        for name in list(builds)[:: 1 if index % 2 else -1]:
            times = builds[name].ask(samples=FIRST + samples)["ms"][FIRST:]
            medians[name].append(choose(times))
    return medians


def find_mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def tell(row: dict) -> str:
    words = "{suite:12} {model:10} {mode:5} {precision:4} {M:6} {N:6} {K:5}".format(**row)
    if "error" in row:
        return f"{words}  {row['error']}"
    times = f"{row['before']:9.4f} {row['after']:9.4f} ms {row['ratio']:7.3f}"
    same = abs(row["norms"] - 1) < 0.02
    return f"{words} {times}" + ("" if same else f"  results differ: {row['norms']:.3f}")


def summarize(rows: list[dict]) -> list[str]:
    """Geometric means by suite."""
    lines = []
    for suite in dict.fromkeys(row["suite"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["suite"] == suite and "ratio" in row]
        if ratios:
            lines.append(
                f"{suite}: {len(ratios)} cases, after / before {find_mean(ratios):.4f}, "
                f"{min(ratios):.3f} to {max(ratios):.3f}"
            )
    return lines


SUITES = ("models", "training", "memory_bound", "host", "sweep")


def main() -> int:
    parser = argparse.ArgumentParser("bench.builds", description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=pathlib.Path, required=True)
    parser.add_argument("--after", type=pathlib.Path, default=ROOT)
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--pairs", type=int, default=2, help="of processes")
    parser.add_argument("--rounds", type=int, default=8, help="of each pair")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds")
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file for the rows")
    options = parser.parse_args()
    folders = {"before": options.before, "after": options.after}
    pairs = [
        {name: Build(folder) for name, folder in folders.items()} for _ in range(options.pairs)
    ]
    begin, rows = time.monotonic(), []
    for case in list_cases(options.suites.split(",")):
        if time.monotonic() - begin > options.budget:
            print("the budget is spent")
            break
        rows.append(time_case(pairs, case, options.rounds, options.samples))
        print(tell(rows[-1]), flush=True)
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print("\n".join(summarize(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
