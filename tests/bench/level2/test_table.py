"""The page of the problems of level 2 has the table of the results that are committed."""

import json

from bench import plot
from bench.kernelbench.level2 import table
from bench.kernelbench.level2.__main__ import read_rows

RESULTS = plot.choose_folder(None, "level2") / "level2.jsonl"


def test_page_is_of_the_results():
    text = table.PAGE.read_text()
    assert table.fill(text, read_rows(RESULTS)) == text


def test_cells():
    machine = {"gpu": "h200", "torch": "2.11.0", "commit": "a" * 40}
    own = {"problem": "7_A_B", "machine": machine}
    times = {"eager": 3.0, "compile": 2.0, "fuse": 1.0}
    right = own | {"dtype": "fp32", "ms": times, "wall_ms": times, "fused": "whole"}
    wrong = own | {"dtype": "bf16", "error": "Wrong: far off"}
    lines = table.write_table([right, wrong]).splitlines()
    assert lines[-1] == "| 7 A B | **2.00** (3.00 / 2.00 / 1.00) | not within 1e-4 | whole |"
    assert lines[0].startswith("fp32: 1 of 1 right, 1 fused whole")
    assert "commit aaaaaaa, one NVIDIA H200" in table.write_table([right])


def test_command(tmp_path, monkeypatch):
    page, results = tmp_path / "page.md", tmp_path / "level2.jsonl"
    page.write_text("<!-- results: level2 -->\nold\n<!-- end -->\n")
    results.write_text(RESULTS.read_text().splitlines()[0] + "\n")
    monkeypatch.setattr(table, "PAGE", page)
    assert table.main([str(results)]) == 0
    (row,) = map(json.loads, results.read_text().splitlines())
    assert row["problem"].replace("_", " ") in page.read_text() and "old" not in page.read_text()
