"""Goes through the cases of a suite: what is there already is left, progress is shown, and a time
budget ends the run between two cases."""

import argparse
import time
from collections.abc import Callable, Sequence

from ..cases.cases import Case
from .results import UNSTEADY, ResultFile, case_of, is_unsteady


def list_todo(
    file: ResultFile,
    options: argparse.Namespace,
    cases: Sequence[Case],
    list_variants: Callable[[Case], Sequence[str]],
) -> list[Case]:
    """What run_cases of the same arguments measures, in its order."""
    keys = {case: case_of(case.describe(file.suite)) for case in cases}
    found = {case: file.list_variants(key) for case, key in keys.items()}
    todo = [
        case
        for case in cases
        if options.again
        or not found[case].issuperset(list_variants(case))
        or (options.unsteady and file.is_unsteady(keys[case]))
    ]
    return sorted(todo, key=lambda case: bool(found[case]))


def run_cases(
    file: ResultFile,
    options: argparse.Namespace,
    cases: Sequence[Case],
    list_variants: Callable[[Case], Sequence[str]],
    measure: Callable[[Case], list[dict]],
    format_table: Callable[[list[dict]], str] | None = None,
) -> int:
    """Puts the rows of all cases into the file, and returns how many cases are left.

    Args:
        options: again: measure also what is there; unsteady: measure also cases with a row that
            is; budget: seconds, or None.
        list_variants: what a case is to have; rows of all of them make it measured.
        measure: the rows of a case. A peer that fails has none: its case is tried again by the next
            run, but behind those that have not been measured at all.
        format_table: what to print of them.
    """
    start = time.perf_counter()
    todo = list_todo(file, options, cases, list_variants)
    if len(todo) < len(cases):
        print(f"{len(cases) - len(todo)} of {len(cases)} cases are measured already")
    longest = 0.0
    for index, case in enumerate(todo):
        begin = time.perf_counter()
        # The first is always measured, or a small budget would never get on.
        if options.budget and index and begin - start + longest > options.budget:
            print(f"stopped: {len(todo) - index} cases are left, for the same command again")
            break
        print(f"[{index + 1}/{len(todo)}] {case}", flush=True)
        rows = measure(case)
        file.replace(rows)
        if format_table is not None:
            print(format_table(rows))
        if unsteady := [row["variant"] for row in rows if is_unsteady(row)]:
            names = ", ".join(unsteady)
            print(f"  unsteady: {names}: a median over {UNSTEADY} times the least; see --unsteady")
        seconds = time.perf_counter() - begin
        longest = max(longest, seconds)
        print(f"  {seconds:.0f} s", flush=True)
    else:
        index = len(todo)
    print(f"{file.path}: {len(file.rows)} rows, {time.perf_counter() - start:.0f} s")
    return len(todo) - index
