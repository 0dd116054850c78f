"""The order of work behind a product that still runs: tests/host/find_strip_units.cpp."""

import pytest
from host_program import compile_host_program

COLUMNS_OF_STRIP, STRIPS_OF_PANEL, CHUNK_ROWS, MERGES = 256, 4, 256, 8
SHAPES = [(2, 8), (256, 256), (257, 257), (16384, 4096), (70000, 264), (4100, 2312)]


@pytest.fixture(scope="module")
def list_units(tmp_path_factory):
    """list_units(rows, columns) -> [(strip, part, merges)]"""
    run = compile_host_program("find_strip_units", tmp_path_factory.mktemp("find_strip_units"))

    def list_units(rows, columns):
        *lines, end = run([f"{rows} {columns}"])
        assert end == "end"
        found = [tuple(map(int, line.split())) for line in lines]
        return [unit for unit in found if unit[0] < -(-columns // COLUMNS_OF_STRIP)]

    return list_units


@pytest.mark.parametrize("shape", SHAPES)
def test_each_part_is_one_unit(list_units, shape):
    rows, columns = shape
    units = list_units(rows, columns)
    expected = {
        (strip, part, int(merges))
        for strip in range(-(-columns // COLUMNS_OF_STRIP))
        for merges, parts in ((True, MERGES), (False, -(-rows // CHUNK_ROWS)))
        for part in range(parts)
    }
    assert len(units) == len(expected)
    assert set(units) == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_no_unit_waits_for_a_later_one(list_units, shape):
    """A strip's rows need all its merges: blocks that wait in the order of units all end."""
    merged = {}
    for strip, _, merges in list_units(*shape):
        if merges:
            merged[strip] = merged.get(strip, 0) + 1
        else:
            assert merged[strip] == MERGES


@pytest.mark.parametrize("shape", SHAPES)
def test_panels_follow_each_other(list_units, shape):
    """The product completes them in this order."""
    panels = [strip // STRIPS_OF_PANEL for strip, _, _ in list_units(*shape)]
    assert panels == sorted(panels)
