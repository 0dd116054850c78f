"""How the elements of a program's kernel are dealt out to threads."""

import pytest
from host_program import compile_host_program

from build_system.paths import ROOT

HEADER = "cutlass_fused/program/pointwise_plan.hpp"
FAULTS = {
    "a piece lies on no boundary of its words": [
        ("memory.address % word == 0 && step % word == 0", "memory.address % word == 0"),
        ("memory.address % word == 0 && step % word == 0", "step % word == 0"),
    ],
    "a row has no whole number of pieces": [("columns % piece == 0", "true")],
    "too many numbers": [("numbers > kMostNumbers", "numbers > 8 * kMostNumbers")],
    "a piece is not written once": [
        ("(pieces + along - 1) / along", "(pieces + along - 1) / along - (pieces > along)"),
    ],
    "a block of another size": [("grid{along, kThreads / along", "grid{along, 1")],
    "a grid that cannot be launched": [
        ("std::max<int64_t>(1, std::min", "(0 * std::min"),
        ("std::min(blocks, kMostGridY)", "blocks"),
    ],
    "lines that have no halves": [("unsigned(kThreads / along)", "unsigned(kThreads / along - 1)")],
    "a thread of too many rows": [("merged}), least)", "merged}), int64_t{1})")],
    "columns that nobody adds up": [
        ("(pieces + along - 1) / along", "(pieces + along - 1) / along - (pieces > along)"),
    ],
    "nowhere for what blocks leave": [("if (grid.grid_y == 1) return 0;", "return 0;")],
    "too much for the last block": [("enough, merged})", "enough})")],
}


def run(folder, source=None, options=()):
    options = ("-Wextra", "-fsanitize=undefined", *options)
    return compile_host_program("programs/plan_pointwise", folder, source, options)([])


def test_each_piece_once_and_on_its_boundary(tmp_path):
    lines = run(tmp_path)
    counts = {int(line.split()[2]): int(line.split()[0]) for line in lines if " of " in line}
    assert set(counts) == {1, 2, 4, 8} and len(lines) == 4
    assert sum(counts.values()) == 10000 and min(counts.values()) > 200


@pytest.mark.parametrize("message", FAULTS)
def test_planted_faults(tmp_path, message):
    """Each is found."""
    text = (ROOT / "include" / HEADER).read_text()
    for i, (right, wrong) in enumerate(FAULTS[message]):
        assert right in text, right
        folder = tmp_path / str(i)
        spoilt = folder / HEADER
        spoilt.parent.mkdir(parents=True)
        spoilt.write_text(text.replace(right, wrong))
        source = folder / "plan_pointwise.cpp"
        source.write_text((ROOT / "tests/host/programs/plan_pointwise.cpp").read_text())
        # Found in front of the header of the checkout.
        lines = run(folder, source, ("-w", "-iquote", folder))
        assert message in lines, (wrong, set(lines))
