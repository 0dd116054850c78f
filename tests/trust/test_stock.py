"""The proof that a report of a sanitizer is one of CUTLASS's own kernels."""

import json
import stat

import pytest

from bench.trust import merge, pieces, sanitize, stock

META = {"gpu": "h100", "driver": "580", "cuda": "13.0", "torch": "2.11.0", "commit": "c" * 40}
META |= {"date": "2026-11-27", "library": "1" * 16, "sources": "2" * 16, "code": "3" * 16}
NAMES = [
    "sm90_pingpong",
    "sm90_cooperative",
    "sm90_single",
    "sm80_data_parallel",
    "sm80_stream_k",
    "sm90_copy_async",
    "stages_one_lane",
    "stages_each_thread",
]
# As compute-sanitizer: it takes its options, and tells of a race in one kernel.
TOOL = """\
#!/bin/sh
for word; do name=$word; done
echo "$@" >> "$0.log"
case $name in
  sm90_pingpong)
    echo "========= Error: Race reported between Write access at cutlass::device_kernel+0x60"
    echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
    exit 86;;
  sm80_stream_k)
    echo "sm80_stream_k: d[0, 0] must be 1, got 2"
    echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    exit 1;;
  sm90_single)
    echo "========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception."
    echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
    exit 1;;
esac
echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
"""


def test_source_has_nothing_of_ours():
    text = stock.SOURCE.read_text()
    assert "cutlass_fused" not in text and "#include <torch" not in text
    assert stock.list_names() == NAMES


def test_tools_look_at_these_kernels():
    """Ours are chosen by a word that these do not have."""
    assert stock.OPTIONS.keys() == set(sanitize.SANITIZERS)
    assert stock.OPTIONS["racecheck"] == ("--kernel-name", "kernel_substring=cutlass")
    assert stock.OPTIONS["memcheck"] == ()


def test_command_is_that_of_the_library(tmp_path):
    try:
        words = stock.write_command(tmp_path / "program")
    except SystemExit as error:
        pytest.skip(str(error))
    assert "arch=compute_90a,code=sm_90a" in words and "arch=compute_80,code=sm_80" in words
    assert words[-2:] == ["-o", str(tmp_path / "program")]


def test_options_are_checked_before_anything_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr(stock, "build", lambda: pytest.fail("it was built"))
    for options in ([], ["--tool", "racecheck"], ["--out", str(tmp_path)]):
        with pytest.raises(SystemExit):
            stock.main(options)


def test_reports_are_kept_and_a_wrong_result_is_none(monkeypatch, tmp_path, capsys):
    tool = tmp_path / "tool"
    tool.write_text(TOOL)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(stock, "build", lambda: None)
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: str(tool))
    monkeypatch.setattr(stock.pieces, "describe", lambda *arguments: META)
    out = tmp_path / "pieces"
    assert stock.main(["--tool", "racecheck", "--out", str(out)]) == 1
    assert '{"no answer": ["sm80_stream_k"]}' in capsys.readouterr().out
    calls = (tmp_path / "tool.log").read_text().splitlines()
    assert [call.split()[-1] for call in calls] == NAMES
    assert all("--kernel-name kernel_substring=cutlass " in call for call in calls)
    content = merge.merge(pieces.read_pieces(out))
    (row,) = [row for row in content["rows"] if row["part"] == "stock"]
    assert row["kernels"] == {"sm90_pingpong": 2} and row["errors"] == 2
    assert row["no_answer"] == ["sm80_stream_k"] and row["broke"] == ["sm90_single"]
    others = {"sm90_pingpong", "sm80_stream_k", "sm90_single"}
    assert row["right"] == sorted(set(NAMES) - others)
    told = "\n".join(merge.list_lines(json.loads(json.dumps(content))))
    assert "racecheck of CUTLASS's own kernels" in told
    assert "2 errors, in sm90_pingpong; it broke in sm90_single; 1 gave no answer" in told
