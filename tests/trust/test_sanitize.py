"""What runs under the sanitizers: a unit for every kernel of the library, and what tools print."""

import pathlib

import fill_memory
import pytest
import sanitized_fp32
import sanitized_tiles
import torch
from nvrtc import compile_to_ptx
from planted_kernels import PLANTED
from sanitized_units import FAMILIES, UNITS, find_family, list_units

from bench.measure.results import META
from bench.trust import kernels, pieces, sanitize
from cutlass_fused import _library


@pytest.fixture(scope="module")
def names():
    if not _library.is_loaded():
        pytest.skip("the library was not built")
    return [kernels.shorten(name) for name in kernels.list_compiled()]


def test_every_kernel_has_a_unit(names):
    """A kernel that is new fails here until a unit launches it. That it does is for a GPU to see:
    `python -m bench.trust sanitize --tool cover`."""
    assert len(names) > 500
    families = {find_family(name) for name in [*names, *kernels.list_open()]}
    assert families == FAMILIES.keys()
    for family in families:
        assert list_units(family), family
    with pytest.raises(KeyError, match="no unit launches new_kernel<bf16>"):
        find_family("new_kernel<bf16>")


def test_every_unit_is_of_a_family():
    """No name of a unit is misspelt in the table."""
    named = {unit for family in FAMILIES for unit in list_units(family)}
    assert named == UNITS.keys()
    for family, words in FAMILIES.items():
        for word in words:
            assert any(f"{unit} ".startswith(f"{word} ") for unit in UNITS), (family, word)


def test_kernels_that_no_unit_launched_are_told(monkeypatch):
    monkeypatch.setattr(kernels, "list_compiled", lambda: ["void f<(int)1>(int)", "g(float)"])
    monkeypatch.setattr(kernels, "list_open", lambda: ["cutlass_fused_rows"])
    units = {"one": {"kernels": {"void f< (int)1>(int)": 3}}, "two": {"kernels": {}}}
    assert kernels.find_missing(units) == ["g", "cutlass_fused_rows"]


FOUND = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void cutlass_fused::copy_rows<(int)4>(CopyParams)+0x150
=========     by thread (255,0,0) in block (0,0,0)
========= ERROR SUMMARY: 3 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at race+0x60
=========     and Read access at race+0xa0 [256 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_outcomes():
    right = "========= COMPUTE-SANITIZER\n1 calls\n========= ERROR SUMMARY: 0 errors\n"
    assert sanitize.read_outcome(0, right, 1.0).verdict == "right"
    found = sanitize.read_outcome(sanitize.FOUND, FOUND, 1.0)
    assert (found.verdict, found.errors) == ("found", 3)
    assert found.kernels == {"copy_rows<4>": 1}
    race = sanitize.read_outcome(sanitize.FOUND, RACE, 1.0)
    assert (race.verdict, race.errors) == ("found", 1) and race.kernels["race"] == 2
    # A result that is wrong, and a tool that has looked at nothing, are no success.
    assert sanitize.read_outcome(1, right, 1.0).verdict == "failed"
    assert sanitize.read_outcome(0, "1 calls, all results right", 1.0).verdict == "failed"


WARNED = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Read access at void cutlass_fused::repair<(int)4>(P)+0xb0
=========     and Write access at void cutlass_fused::repair<(int)4>(P)+0xc0 [256 hazards]
=========
31 calls, all results right
========= RACECHECK SUMMARY: 12 hazards displayed (0 errors, 12 warnings)
"""
BROKE = """\
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception.
========= Error: process didn't terminate successfully
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
UNWRITTEN = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::elementwise_kernel<(int)128, float>(int, T3)+0x19b0
=========     by thread (64,0,0) in block (8,0,0)
5 calls, all results right
========= ERROR SUMMARY: 1 error
"""
OWN = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void cutlass_fused::normalize<float>(Params)+0x90
========= ERROR SUMMARY: 2 errors
"""


def test_what_is_no_error():
    """Warnings, and reads by kernels that are not ours of what was stored unseen; but all results
    must be right, and an error of ours stays one beside them."""
    warned = sanitize.read_outcome(sanitize.FOUND, WARNED, 1.0)
    assert (warned.verdict, warned.errors, warned.kernels) == ("right", 0, {})
    assert warned.warnings == {"repair<4>": 2}
    assert sanitize.read_outcome(sanitize.FOUND, WARNED + RACE, 1.0).verdict == "found"
    silent = WARNED.replace("all results right", "")
    assert sanitize.read_outcome(sanitize.FOUND, silent, 1.0).verdict == "failed"
    others = sanitize.read_outcome(sanitize.FOUND, UNWRITTEN, 1.0)
    assert (others.verdict, others.errors) == ("right", 0) and sum(others.warnings.values()) == 1
    own = sanitize.read_outcome(sanitize.FOUND, UNWRITTEN.partition("5 calls")[0] + OWN, 1.0)
    assert (own.verdict, own.errors) == ("found", 1) and own.kernels == {"normalize<fp32>": 1}


def test_a_sanitizer_that_breaks_has_found_nothing():
    outcome = sanitize.read_outcome(1, BROKE, 1.0)
    assert (outcome.verdict, outcome.errors, outcome.kernels) == ("broke", 0, {})


BREAKS = """\
#!/bin/sh
case "$*" in
  *--skip=64x64,128x256*) echo "tile 32x32"; echo "2 calls, all results right"
    echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"; exit 0;;
  *--skip=64x64*) tile=128x256;;
  *) tile=64x64;;
esac
echo "tile 16x16"; echo "tile $tile"
echo "========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception."
echo "  what():  CUDA error: an illegal memory access was encountered"
echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
exit 1
"""


def test_a_unit_runs_again_without_the_tiles_over_which_it_broke(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text(BREAKS)
    tool.chmod(0o755)
    outcome = sanitize.run_tool("racecheck", ["run.py", "linear bf16"], 60.0, str(tool))
    assert (outcome.verdict, outcome.broke) == ("right", ("64x64", "128x256"))
    # An access that a tool for memory tells of is no reason to look away.
    outcome = sanitize.run_tool("memcheck", ["run.py", "linear bf16"], 60.0, str(tool))
    assert (outcome.verdict, outcome.broke) == ("broke", ())


def test_tiles_are_told_before_they_run(capsys, monkeypatch):
    monkeypatch.setattr(sanitized_tiles, "SKIPPED", {"b"})
    tiles = sanitized_tiles.tell_tiles(["a", "b", "c"])
    assert next(tiles) == "a" and capsys.readouterr().out == "tile a\n"
    assert list(tiles) == ["c"]


@pytest.fixture
def restored():
    yield
    torch.use_deterministic_algorithms(False)


def test_new_memory_is_filled(restored):
    fill_memory.fill_new_memory("cpu")
    assert torch.empty(5).isnan().all() and torch.empty(5, dtype=torch.int32).min() == 2**31 - 1


def test_what_a_sanitizer_takes_for_unwritten_is_nan():
    """Between the columns of a matrix that lies along its rows, and it changes no result."""
    matrix = sanitized_fp32.lay_along_rows(torch.ones(6, 3))
    assert torch.equal(matrix, torch.ones(6, 3)) and matrix.stride() == (1, 8)
    assert torch.as_strided(matrix, (8,), (1,))[6:].isnan().all()


def test_a_tool_that_is_out_of_time_ends_with_all_it_started(tmp_path):
    """A tool that starts the program and waits for it, as compute-sanitizer does."""
    tool, pid = tmp_path / "tool", tmp_path / "pid"
    tool.write_text(f'#!/bin/sh\nsleep 100 &\necho $! > "{pid}"\nwait\n')
    tool.chmod(0o755)
    outcome = sanitize.run_tool("memcheck", ["none"], 2.0, str(tool))
    assert outcome.verdict == "out of time"
    state = pathlib.Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_blocks_are_those_that_the_program_asked_for(tmp_path):
    """PyTorch's pool would hide an overrun: a block of it is larger than what it holds."""
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\necho "caching $PYTORCH_NO_CUDA_MEMORY_CACHING"\nexit 1\n')
    tool.chmod(0o755)
    assert sanitize.run_tool("memcheck", ["none"], 20.0, str(tool)).told[0] == "caching 1"


def test_every_tool_has_a_planted_fault():
    assert {planted.tool for planted in PLANTED.values()} == set(sanitize.TOOLS)
    for name, planted in PLANTED.items():
        assert f"__global__ void cutlass_fused_{name}(int* x, int count)" in planted.source


@pytest.mark.parametrize("name", PLANTED)
def test_planted_kernels_compile(name):
    """By NVRTC, as they are when they run."""
    ptx, log = compile_to_ptx(PLANTED[name].source, ["--gpu-architecture=compute_90"])
    assert ptx is not None, log
    assert f".entry cutlass_fused_{name}(" in ptx


def test_a_tool_that_finds_no_planted_fault_ends_the_run(monkeypatch, tmp_path, capsys):
    right = sanitize.Outcome("right", 0, 1.0, {}, [])
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: "none")
    monkeypatch.setattr(sanitize, "run_tool", lambda *arguments: right)
    monkeypatch.setattr(sanitize.pieces, "describe", lambda *arguments: {})
    assert sanitize.main(["--tool", "racecheck", "--out", str(tmp_path)]) == 1
    assert "does not find the planted race, missing_wait" in capsys.readouterr().out


def test_units_are_chosen_by_what_they_begin_with():
    assert sanitize.choose_units(None) == list(UNITS)
    chosen = sanitize.choose_units("linear,mixed bf16")
    assert {name.split()[0] for name in chosen} == {"linear", "mixed"} and len(chosen) == 7
    for words in ("linaer", "linear,", "linear,mixed bf"):
        with pytest.raises(SystemExit, match="--units must be what units begin with, got"):
            sanitize.choose_units(words)


def test_units_that_failed_run_again(tmp_path):
    """And those that had no time; not those of which the tool has told, nor of another library."""
    meta = dict.fromkeys((*META, *pieces.SAME), "a")
    units = {word: {"verdict": word} for word in ("right", "found", "failed", "out of time")}
    content = {"part": "sanitize", "tool": "memcheck", "planted": {}, "units": units, "meta": meta}
    pieces.write_piece(tmp_path / "sanitize-memcheck-000.json", content)
    assert sanitize.find_done(tmp_path, "memcheck", meta).keys() == {"right", "found"}
    assert sanitize.find_done(tmp_path, "memcheck", meta | {"library": "b"}) == {}
    assert sanitize.find_done(tmp_path, "racecheck", meta) == {}


def test_units_that_are_left_are_counted(monkeypatch, tmp_path, capsys):
    """Where the time is up."""
    monkeypatch.setattr(sanitize.pieces, "describe", lambda *arguments: {})
    monkeypatch.setattr(sanitize.kernels, "report", lambda units: [])
    options = ["--tool", "cover", "--units", "linear", "--seconds", "0", "--out", str(tmp_path)]
    assert sanitize.main(options) == 0
    count = len(sanitize.choose_units("linear"))
    assert f"{count} of {count} are left" in capsys.readouterr().out
