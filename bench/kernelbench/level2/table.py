"""python -m bench.kernelbench.level2.table FILE: the table of the page, from a file of results."""

import argparse
import pathlib
import re
import sys
from collections.abc import Sequence

from ...plotting.numbers import format_time
from ...readme import fill_line, format_table
from .__main__ import find_ratio, read_rows, summarize

PAGE = pathlib.Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- results: level2 -->\n).*?(<!-- end -->\n)", re.DOTALL)
VARIANTS = ("eager", "compile", "fuse")


def write_cell(row: dict | None) -> str:
    """The better peer over the fused model; milliseconds of eager, of compile and of ours."""
    if row is None:
        return ""
    if "error" in row:
        return "not within 1e-4"
    times = " / ".join(format_time(row["ms"][name]) for name in VARIANTS if name in row["ms"])
    ratio = find_ratio(row)
    return times if ratio is None else f"**{ratio:.2f}** ({times})"


def describe(rows: Sequence[dict]) -> list[str]:
    """A paragraph for each dtype: the sums, and where they are from."""
    lines = []
    for line in summarize(rows):
        word = line.partition(":")[0]
        machines = [row["machine"] for row in rows if row["dtype"] == word]
        gpu, torch = machines[0]["gpu"].upper(), machines[0]["torch"]
        commits = ", ".join(dict.fromkeys(machine["commit"][:7] for machine in machines))
        lines.append(fill_line(f"{line} (commit {commits}, one NVIDIA {gpu}, torch {torch})."))
    return lines


def write_table(rows: Sequence[dict]) -> str:
    found = {(row["problem"], row["dtype"]): row for row in rows}
    words = list(dict.fromkeys(row["dtype"] for row in rows))
    problems = sorted({row["problem"] for row in rows}, key=lambda name: int(name.split("_")[0]))
    lines = []
    for problem in problems:
        own = [found.get((problem, word)) for word in words]
        fused = next((row["fused"] for row in own if row and "fused" in row), "")
        lines.append([problem.replace("_", " "), *map(write_cell, own), fused])
    return "".join(describe(rows)) + format_table(["problem", *words, "fused"], lines)


def fill(text: str, rows: Sequence[dict]) -> str:
    return BLOCK.sub(lambda block: f"{block[1]}\n{write_table(rows)}\n{block[2]}", text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kernelbench.level2.table")
    parser.add_argument("file", type=pathlib.Path)
    options = parser.parse_args(arguments)
    PAGE.write_text(fill(PAGE.read_text(), read_rows(options.file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
