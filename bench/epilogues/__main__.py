"""python -m bench.epilogues --out DIR: epilogues that users write, into DIR/epilogues.json.

All variants of a case run interleaved, on cold caches, after one check of each against float64.
The parts, in this order:

large    nine programs in bf16 at 1024 x 8192 x 8192, and at 8192 x 4096 x 512
fp32     the same in fp32 "ieee", at the first size, with the weight kept
first    the first call of a process, which links, and one that finds the cache on disk
users    three programs at layers that people have, in bf16 and fp32 "ieee"
steps    a forward and a backward pass of some of these
others   fp32 "tf32", and two programs in fp16

--budget ends a run between two cases; the same command goes on. `python -m bench.epilogues.lines
DIR` says which limits are kept.
"""

import functools
import sys
import time
from collections.abc import Sequence

from cutlass_fused import comparison
from cutlass_fused.timing import summarize

from ..measure.checking import report_failures
from ..measure.machine import open_results
from ..measure.options import add_words, build_parser
from ..measure.results import case_of
from ..measure.run_cases import run_cases
from ..measure.timing import make_row
from .cases import PARTS, EpilogueCase, list_cases, list_variants
from .first_calls import measure_all
from .link_ahead import Linker
from .measure import SUITE, measure_calls, measure_step
from .programs import PROGRAMS

Failures = dict[tuple[EpilogueCase, str], type[Exception]]


class Parts:
    """What is done for all cases of a part before the first of them is measured: their kernels are
    linked, or first calls are made."""

    def __init__(self, todo: Sequence[EpilogueCase], linker: Linker) -> None:
        self.todo, self.linker = todo, linker
        self.prepare = functools.cache(self._prepare)

    def _prepare(self, part: str):
        start = time.perf_counter()
        cases = [case for case in self.todo if case.part == part]
        done = measure_all(cases) if part == "first" else self.linker.link_all(cases)
        print(f"  {part}: prepared in {time.perf_counter() - start:.0f} s", flush=True)
        return done


def measure(parts: Parts, rounds: int, failures: Failures, case: EpilogueCase) -> list[dict]:
    """The rows of a case; what fails is told, lies in `failures`, and is left out."""
    own: dict[str, type[Exception]] = {}
    try:
        prepared = parts.prepare(case.part)
        if case.part == "first":
            rows = make_rows(case, prepared[case])
        else:
            measure_part = measure_step if case.part == "steps" else measure_calls
            rows = measure_part("cuda", rounds, own, case)
    except Exception as error:  # of what all variants need, as memory
        print(f"  the case is left out: {type(error).__name__}: {error}", flush=True)
        rows, own["all"] = [], type(error)
    failures.update({(case, name): error for name, error in own.items()})
    return rows


def make_rows(case: EpilogueCase, calls: dict[str, list[dict]] | Exception) -> list[dict]:
    """Those of first calls."""
    if isinstance(calls, Exception):
        raise calls
    rows = []
    for name, found in calls.items():
        worst = max(found, key=lambda call: call["rel_err"])
        timing = summarize(call["ms"] for call in found)
        wall = summarize(call["wall_ms"] for call in found).median
        row = make_row(case.describe(SUITE), name, timing, worst["rel_err"], wall_ms=wall)
        rows.append(row | {"kernels": max(call["kernels"] for call in found)})
    return rows


def format_table(rows: list[dict]) -> str:
    """Times, errors, and each variant's time divided by ours."""
    ours = next((row["ms"] for row in rows if row["variant"] == "ours"), None)
    titles = ("ms", "min", "max", "rel. error", "/ours")
    lines = [f"  {'variant':13}" + "".join(f"{title:>11}" for title in titles)]
    for row in rows:
        cells = [f"{row[key]:.4f}" for key in ("ms", "ms_min", "ms_max")]
        cells.append(f"{row['rel_err']:.2e}")
        cells.append("" if ours is None else f"{row['ms'] / ours:.3f}")
        if "kernels" in row:
            cells.append(f"{row['kernels']} linked")
        lines.append(f"  {row['variant']:13}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where a result of ours was wrong."""
    parser = build_parser("bench.epilogues", __doc__, rounds=50)
    add_words(parser, "--parts", PARTS)
    add_words(parser, "--programs", tuple(PROGRAMS))
    add_words(parser, "--precisions", tuple(comparison.PRECISIONS))
    options = parser.parse_args(arguments)
    cases = list_cases(options.parts, options.programs, options.precisions)
    file = open_results(SUITE, options)

    def is_there(case: EpilogueCase) -> bool:
        return file.list_variants(case_of(case.describe(SUITE))).issuperset(list_variants(case))

    todo = [case for case in cases if options.again or options.unsteady or not is_there(case)]
    failures: Failures = {}
    with Linker() as linker:
        run_cases(
            file,
            options,
            cases,
            list_variants,
            functools.partial(measure, Parts(todo, linker), options.rounds, failures),
            format_table,
        )
    wrong = report_failures(failures)
    return int(any(name in ("ours", "identity", "all") for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
