"""The clock that runs beside a build."""

import re

import pytest

from build_system import clock, ninja_file, paths

LOG = """\
# ninja log v6
10\t7510\t1\tbuild/cutlass_fused/objects/clock_0.ptx\ta
0\t300000\t2\tbuild/cutlass_fused/objects/sm90_pairs.cu.o\tb
500000\t508500\t3\tbuild/cutlass_fused/objects/clock_1.ptx\tc
5\t6005\t4\tbuild/cutlass_fused/objects/clock_0.ptx\ta
5\t9005\t4\tbuild/cutlass_fused/objects/o_clock_0.cu.o\ta
"""


@pytest.fixture
def lines(tools, monkeypatch):
    """The build lines of build.ninja, with a clock."""
    monkeypatch.setenv("CUTLASS_FUSED_CLOCK", "1")
    text = ninja_file.format_ninja(tools, ninja_file.list_edges(tools))
    return re.findall(r"^build .*", text, re.MULTILINE)


@pytest.mark.parametrize("word", [None, "", "0"])
def test_runs_only_where_it_is_asked_for(tools, monkeypatch, word):
    monkeypatch.delenv("CUTLASS_FUSED_CLOCK", raising=False)
    if word is not None:
        monkeypatch.setenv("CUTLASS_FUSED_CLOCK", word)
    assert "clock.cu" not in ninja_file.format_ninja(tools, ninja_file.list_edges(tools))


def test_runs_in_front_of_every_third_long_file(lines):
    long = [line for line in lines if re.search(r": clock |: ptx |/sm\d+_\w+\.cu$", line)]
    clocks = [at for at, line in enumerate(long) if ": clock " in line]
    assert len(clocks) > 3 and clocks == list(range(0, len(long), 1 + clock.EVERY))


def test_is_part_of_no_library_which_waits_for_it(lines):
    """Else ninja would start it when all others run."""
    clocks = [line.split()[1][:-1] for line in lines if ": clock " in line]
    assert clocks == [str(clock.name_output(index)) for index in range(len(clocks))]
    for path in (paths.LIBRARY, paths.SWITCH):
        (link,) = [line for line in lines if line.startswith(f"build {path}: link ")]
        linked, _, awaited = link.partition(" || ")
        assert awaited.split() == clocks and "clock" not in linked
    (packed,) = [line for line in lines if line.startswith(f"build {paths.OPEN_KERNELS}: ")]
    assert "clock" not in packed


def test_its_times_are_those_of_the_last_build(tmp_path):
    log = tmp_path / "log"
    assert clock.read_times(log) == []
    log.write_text(LOG)
    assert clock.read_times(log) == [6.0, 8.5]


def test_knows_nothing_of_ours():
    assert "cutlass_fused" not in clock.SOURCE
