"""How the documents write lines, lists and tables."""

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 115  # of a line


def format_table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def describe_run(what: str, meta: dict, how: str) -> str:
    gpu, commit = meta["gpu"].upper(), meta["commit"][:7]
    where = f"commit {commit}, {meta['date']}, one NVIDIA {gpu}, torch {meta['torch']}"
    return fill_line(f"{what} ({where}): {how}")


def format_list(lines: Iterable[str]) -> str:
    return "".join(f"* {line}.\n" for line in lines)


def fill_line(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False) + "\n\n"


def join_tables(
    what: str, meta: dict | None, tables: Iterable[tuple[str, list[str], list[list[str]]]]
) -> list[str]:
    """Of those with lines what each says and the table; the first says where it is from."""
    parts = []
    for how, titles, lines in tables:
        if lines:
            text = describe_run(what, meta, how) if not parts else fill_line(how)
            parts.append(text + format_table(titles, lines))
    return parts
