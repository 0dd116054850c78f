"""Files stay small enough to be read as a whole, and folders to be seen at a glance."""

import collections
import statistics

from documents import ROOT, list_files

SOURCES = (".py", ".hpp", ".cuh", ".h", ".cpp", ".cu")
TEXTS = (*SOURCES, ".md", ".txt", ".toml", "Makefile")
MOST_LINES = 400
MOST_LINES_OF_HALF = 150  # of the sources
MOST_FILES = 15  # right in a folder
CUT_FOLDERS = ("bench", "cutlass_fused", "examples", "include", "src", "tests")
# Folder -> how those of its files begin that do not count: each forwards to one that was moved.
LARGER_FOLDERS = {"include/cutlass_fused": "// The header that was here is "}


def count_lines(endings):
    """Path -> lines, without the results, which the benches write."""
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


def list_by_folder():
    """The files right in each folder, which are neither built nor results."""
    folders = collections.defaultdict(list)
    for path in list_files("*.*"):
        folder = str(path.relative_to(ROOT).parent)
        is_ours = path.name.endswith(TEXTS) and not folder.startswith("bench/results")
        if is_ours and folder.partition("/")[0] in CUT_FOLDERS:
            folders[folder].append(path)
    return folders


def test_no_folder_is_large():
    folders = list_by_folder()
    assert {"src/ops", "include/cutlass_fused/gemm", "tests/helpers/calls"} <= folders.keys()
    for folder, beginning in LARGER_FOLDERS.items():
        assert len(folders[folder]) > MOST_FILES, f"{folder} is an exception no longer"
        folders[folder] = [f for f in folders[folder] if not f.read_text().startswith(beginning)]
    assert not {name: len(paths) for name, paths in folders.items() if len(paths) > MOST_FILES}
