"""trust.json: pieces of runs that become its rows, and the table of docs/reliability.md."""

import json

import pytest

from bench.measure.results import InvalidResult
from bench.trust import merge, pieces
from bench.trust.mended import MENDED
from build_system.paths import ROOT

META = {"gpu": "h100", "driver": "1", "cuda": "13.0", "torch": "2.11.0", "commit": "a" * 40}
META |= {"date": "2026-01-02", "library": "0123", "sources": "4567"}
RESULTS = sorted((ROOT / "bench/results").glob("*/trust.json"))


def make_fuzz(numbers, told=(), **changes):
    verdicts = {"right": 1}  # which merge counts itself
    piece = {"part": "fuzz", "meta": META, "seed": 1, "settings": {}, "canaries": 2}
    piece |= {"told": list(told), "numbers": numbers, "verdicts": verdicts, "seconds": 3.0}
    return piece | changes


def make_unit(verdict="right", errors=0, **where):
    unit = {"verdict": verdict, "errors": errors, "seconds": 2.0, "kernels": where, "told": []}
    return unit


def make_sanitize(tool, **units):
    planted = {"overrun": make_unit("found", 1)} if tool == "memcheck" else {}
    return {"part": "sanitize", "tool": tool, "meta": META, "planted": planted, "units": units}


def tell(number, verdict):
    return {"number": number, "verdict": verdict, "what": "words"}


def take(content, part):
    return [row for row in content["rows"] if row["part"] == part]


def test_fuzz():
    """A number that was tried again counts once, as it was judged last."""
    first = make_fuzz([[0, 10]], [tell(3, "out of memory"), tell(4, "rejected"), tell(5, "luck")])
    second = make_fuzz([[3, 4], [10, 12]], [tell(11, "canary")])
    (row,) = take(merge.merge([first, second]), "fuzz")
    assert row["cases"] == 12 and row["canaries"] == 4
    assert row["verdicts"] == {"canary": 1, "luck": 1, "rejected": 1, "right": 9}
    assert [each["number"] for each in row["failures"]] == [4, 11]


def test_seeds_and_generators_are_rows_of_their_own():
    others = (make_fuzz([[0, 1]], seed=2), make_fuzz([[0, 1]], meta=META | {"sources": "other"}))
    rows = take(merge.merge([make_fuzz([[0, 1]]), *others]), "fuzz")
    assert [(row["seed"], row["sources"]) for row in rows] == [
        *((1, "4567"), (2, "4567"), (1, "other"))
    ]


def test_sanitizers():
    found = merge.merge(
        [
            make_sanitize("memcheck", a=make_unit("out of time"), b=make_unit()),
            make_sanitize("memcheck", a=make_unit("found", 3, copy_rows=3)),
            make_sanitize("cover", a=make_unit(f=4, g=1), b=make_unit(f=2)),
        ]
    )
    memcheck, cover = take(found, "sanitize")
    assert (memcheck["units"], memcheck["right"], memcheck["errors"]) == (2, 1, 3)
    assert memcheck["kernels"] == {"copy_rows": 3} and memcheck["not_right"] == ["a"]
    assert memcheck["planted"] == {"overrun": 1} and cover["kernels"] == {"launched": 2}


def test_long_runs():
    """The last one of each."""
    runs = [
        {"part": "soak", "run": "replays", "meta": META, "replays": n, "seconds": 1.0, "wrong": []}
        for n in (5, 100000)
    ]
    (row,) = take(merge.merge(runs), "soak")
    assert row["figures"] == {"replays": 100000}


@pytest.mark.parametrize("key", ["library", "gpu", "torch"])
def test_pieces_of_two_libraries_are_refused(key):
    other = make_fuzz([[0, 1]], meta=META | {key: "other"})
    with pytest.raises(InvalidResult, match=f"several: {key} "):
        merge.merge([make_fuzz([[0, 1]]), other])
    with pytest.raises(InvalidResult, match="no pieces"):
        merge.merge([])


def test_file_and_page(tmp_path, capsys):
    pieces.write_piece(tmp_path / "fuzz-1-000.json", make_fuzz([[0, 10]], [tell(4, "rejected")]))
    pieces.write_piece(tmp_path / "sanitize-cover-000.json", make_sanitize("cover", a=make_unit()))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results: trust -->\nold\n<!-- end -->\nbehind\n")
    to = ["--to", str(tmp_path / "h100"), "--page", str(page)]
    assert merge.main(["--out", str(tmp_path), *to]) == 0
    content = json.loads((tmp_path / "h100/trust.json").read_text())
    merge.check(content)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("<!-- end -->\nbehind\n")
    assert "old" not in text and "| 10 cases, 2 with canaries | 1 failures | 3 |" in text
    assert merge.fill(text, None) == "before\n<!-- results: trust -->\n<!-- end -->\nbehind\n"
    content["rows"][0]["cases"] += 1
    with pytest.raises(InvalidResult, match="do not add up"):
        merge.check(content)


def test_every_mended_failure_has_its_test():
    for each in MENDED:
        path, _, name = each.test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), each


@pytest.mark.parametrize("path", RESULTS, ids=str)
def test_committed_results(path):
    merge.check(json.loads(path.read_text()))


def test_page_has_the_committed_results():
    """Those of the first folder that has them; without any the block is empty."""
    content = json.loads(RESULTS[-1].read_text()) if RESULTS else None
    text = merge.PAGE.read_text()
    assert merge.fill(text, content) == text
