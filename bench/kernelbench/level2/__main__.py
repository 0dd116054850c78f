"""python -m bench.kernelbench.level2 CHECKOUT --out FILE: problems of level 2, fused as they are.

CHECKOUT is a clone of https://github.com/ScalingIntelligence/KernelBench. Each of its problems with
a linear layer or a matmul is built as its file says, at full size and in training, without
gradients, as the benchmark calls it. A copy goes through `cutlass_fused.fuse`. Its results must be
within the benchmark's tolerance of the plain model's, 1e-4 in fp32. Then plain model, torch.compile
and fused model are timed interleaved, on cold caches. Weights are kept from call to call.

FILE has one line of JSON for each problem and dtype. The same command goes on where one ended:
--problems, --dtypes and --budget cut it into pieces. The last lines sum up all that is in FILE.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence

from ...measure.machine import check_gpu, describe_machine
from ...measure.options import add_words, parse_count
from .measure import DTYPES, VARIANTS, measure
from .problems import list_problems

PEERS = "eager", "compile"


def find_ratio(row: dict, clock: str = "ms") -> float | None:
    """How many times as long the faster peer takes; None where one of both was not timed."""
    times = row.get(clock, {})
    peers = [times[name] for name in PEERS if name in times]
    return min(peers) / times["fuse"] if peers and "fuse" in times else None


def format_row(row: dict) -> str:
    title = f"{row['problem']}, {row['dtype']}: "
    if "error" in row:
        return f"{title}FAILED, {row['error']}"
    parts = [f"{name} {ms:.3f}" for name, ms in row["ms"].items()]
    if (ratio := find_ratio(row)) is not None:
        parts += [f"ratio {ratio:.2f}, by the host's clock {find_ratio(row, 'wall_ms'):.2f}"]
    parts += [f"rel. error {row['rel_err']:.1e}", f"fused {row.get('fused', 'not')}"]
    lines = [title + ", ".join(parts)]
    for site in row.get("sites", []):
        why = f" ({site['why']})" if site["why"] else ""
        names = " + ".join(site["names"]) or "nothing"
        lines.append(f"    {names} by {site['by']}{why}")
    return "\n".join([*lines, *(f"    left: {each}" for each in row.get("left", []))])


def summarize(rows: Sequence[dict]) -> list[str]:
    """Of each dtype: how many problems are right, how far they are fused, and the means."""
    lines = []
    for word in dict.fromkeys(row["dtype"] for row in rows):
        own = [row for row in rows if row["dtype"] == word]
        right = [row for row in own if "error" not in row]
        counts = {kind: sum(r.get("fused") == kind for r in right) for kind in ("whole", "in part")}
        told = ", ".join(f"{count} fused {kind}" for kind, count in counts.items())
        line = f"{word}: {len(right)} of {len(own)} right, {told}"
        for clock, name in (("ms", "the GPU's time"), ("wall_ms", "the host's clock")):
            ratios = [ratio for row in right if (ratio := find_ratio(row, clock)) is not None]
            if ratios:
                mean, least = statistics.geometric_mean(ratios), min(ratios)
                line += f"; geometric mean {mean:.3f} by {name}, least {least:.3f}"
        lines.append(line)
    return lines


def read_rows(path: pathlib.Path) -> list[dict]:
    """The newest of each problem and dtype."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = {(row["problem"], row["dtype"]): row for row in map(json.loads, lines)}
    return list(rows.values())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    description = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m bench.kernelbench.level2",
        description=__doc__,
        formatter_class=description,
    )
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="file of the results")
    parser.add_argument("--commit", help="what is measured; default: the commit of this checkout")
    parser.add_argument("--problems", type=lambda text: set(map(parse_count, text.split(","))))
    add_words(parser, "--dtypes", list(DTYPES))
    add_words(parser, "--variants", VARIANTS)
    parser.add_argument("--rounds", type=parse_count, default=15, help="default: 15")
    parser.add_argument("--budget", type=parse_count, metavar="SECONDS", help="start none later")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, device: str = "cuda") -> int:
    """Returns 1 where a problem failed."""
    options, start = parse(arguments), time.monotonic()
    machine = {}
    if device == "cuda":
        check_gpu()
        machine = describe_machine(options.commit)
    problems = list_problems(options.checkout)
    if options.problems is not None:
        problems = [problem for problem in problems if problem.number in options.problems]
    # One that failed is tried again.
    there = {(r["problem"], r["dtype"]) for r in read_rows(options.out) if "error" not in r}
    for word in options.dtypes:
        for problem in problems:
            is_late = options.budget and time.monotonic() - start > options.budget
            if is_late or (problem.name, word) in there:
                continue
            try:
                row = measure(device, options.rounds, options.variants, problem, word)
            except Exception as error:  # which the other problems are none of
                text = f"{type(error).__name__}: {error}"
                row = {"problem": problem.name, "dtype": word, "error": text}
            with options.out.open("a") as file:
                file.write(json.dumps(row | {"machine": machine}) + "\n")
            print(format_row(row), flush=True)
    rows = read_rows(options.out)
    print("\n".join(summarize(rows)))
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
