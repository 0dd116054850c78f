"""Files stay small enough to be read as a whole."""

import statistics

from documents import ROOT, list_files

SOURCES = (".py", ".hpp", ".cuh", ".h", ".cpp", ".cu")
TEXTS = (*SOURCES, ".md", ".txt", ".toml", "Makefile")
MOST_LINES = 400
MOST_LINES_OF_HALF = 150  # of the sources


def count_lines(endings):
    """By path; without the results, which the benches write."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in list_files("*")
        if path.name.endswith(endings) and ROOT / "bench/results" not in path.parents
    }


def test_no_file_is_long():
    lines = count_lines(TEXTS)
    assert {"README.md", "Makefile", "setup.py", "src/kernels/table.py"} <= lines.keys()
    assert not {path: count for path, count in lines.items() if count > MOST_LINES}


def test_most_sources_are_short():
    assert statistics.median(count_lines(SOURCES).values()) < MOST_LINES_OF_HALF
