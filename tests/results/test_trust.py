"""trust.json: pieces of runs that become its rows, and the table of docs/reliability.md."""

import json

import pytest

from bench.measure.results import InvalidResult
from bench.trust import __main__ as trust
from bench.trust import merge, pieces
from bench.trust.mended import MENDED
from build_system.paths import ROOT

META = {"gpu": "h100", "driver": "1", "cuda": "13.0", "torch": "2.11.0", "commit": "a" * 40}
META |= {"date": "2026-01-02", "library": "0123", "sources": "4567", "code": "89ab"}
OTHER_COMMIT = {"commit": "b" * 40}
OTHER_CODE = OTHER_COMMIT | {"code": "cdef"}
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


@pytest.mark.parametrize(
    "changed, is_same", [({}, True), (OTHER_COMMIT, True), (OTHER_CODE, False)]
)
def test_a_failure_stays(changed, is_same):
    """What the same code judged wrong once, however often it is right: not so behind a change."""
    first = make_fuzz([[0, 3]], [tell(0, "out of memory"), tell(1, "canary"), tell(2, "luck")])
    again = make_fuzz([[0, 3]], meta=META | changed)
    for found in ([first, again], [first, again, again]):
        (row,) = take(merge.merge(found), "fuzz")
        assert [each["number"] for each in row["failures"]] == ([1] if is_same else [])
        assert row["verdicts"] == ({"canary": 1, "right": 2} if is_same else {"right": 3})


def test_a_piece_that_is_there_twice():
    """As where the folders of two machines were put together."""
    piece = make_fuzz([[0, 3]], [tell(1, "canary")])
    assert merge.merge([piece, dict(piece)]) == merge.merge([piece])


@pytest.mark.parametrize(
    ("piece", "told"),
    [
        (make_fuzz([[0, 3]], [tell(3, "canary")]), "of cases that it has not"),
        (make_fuzz([[0, 3]]) | {"part": "other"}, "must be of fuzz, .* got other"),
    ],
)
def test_what_is_no_piece_is_refused(piece, told):
    with pytest.raises(InvalidResult, match=told):
        merge.merge([piece])


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


def test_errors_that_a_sanitizer_found_stay(monkeypatch):
    """In one code; and units that no run has reached are named, as kernels are."""
    monkeypatch.setattr(merge.sanitize, "UNITS", dict.fromkeys("abc"))
    found, right = make_unit("found", 3, copy_rows=3), make_unit()
    runs = [make_sanitize("memcheck", a=found), make_sanitize("memcheck", a=right, b=right)]
    cover = make_sanitize("cover", a=make_unit(f=1)) | {"missing": ["g"]}
    memcheck, covered = take(merge.merge([*runs, cover]), "sanitize")
    assert (memcheck["errors"], memcheck["not_right"], memcheck["left"]) == (3, ["a"], ["c"])
    assert covered["kernels"] == {"launched": 1, "missing": ["g"]}
    for changed, errors in ((OTHER_COMMIT, 3), (OTHER_CODE, 0)):
        runs[1]["meta"] = META | changed
        (memcheck,) = take(merge.merge(runs), "sanitize")
        assert memcheck["errors"] == errors


def test_kernels_that_units_of_other_runs_have_launched():
    """Two machines with a part of the units each, in either order."""
    runs = [make_sanitize("cover", a=make_unit(f=1)) | {"missing": ["g", "h"]}]
    runs += [make_sanitize("cover", b=make_unit(g=1)) | {"missing": ["f", "h"]}]
    for found in (runs, runs[::-1]):
        (row,) = take(merge.merge(found), "sanitize")
        assert row["kernels"] == {"launched": 2, "missing": ["h"]}


def test_long_runs():
    """The last one of each, and what was wrong in any of its code."""
    of_all = {"part": "soak", "run": "replays", "meta": META, "seconds": 1.0}
    runs = [of_all | {"replays": n, "wrong": wrong} for n, wrong in ((5, ["a leak"]), (100000, []))]
    (row,) = take(merge.merge(runs), "soak")
    assert row["figures"] == {"replays": 100000} and row["wrong"] == ["a leak"]
    for changed, wrong in ((OTHER_COMMIT, ["a leak"]), (OTHER_CODE, [])):
        runs[1]["meta"] = META | changed
        (row,) = take(merge.merge(runs), "soak")
        assert row["wrong"] == wrong


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


def test_a_page_that_is_missing_leaves_all_as_it_was(tmp_path):
    pieces.write_piece(tmp_path / "fuzz-1-000.json", make_fuzz([[0, 10]]))
    to = ["--to", str(tmp_path / "h100"), "--page", str(tmp_path / "none.md")]
    with pytest.raises(SystemExit, match="none.md"):
        merge.main(["--out", str(tmp_path), *to])
    assert not (tmp_path / "h100").exists()


def test_code_is_all_that_runs(tmp_path, monkeypatch):
    """In folders of any depth, and in files that are named."""
    one, deep, kernel = tmp_path / "one.py", tmp_path / "a/b/c.py", tmp_path / "a/d.cu"
    deep.parent.mkdir(parents=True)
    monkeypatch.setattr(pieces, "CODE", (one, tmp_path / "a"))
    hashes = set()
    for path in (one, deep, kernel, deep, one):
        path.write_text(f"{len(hashes)}")
        hashes.add(pieces.hash_code())
    (tmp_path / "a/notes.md").write_text("no code")
    assert len(hashes) == 5 and pieces.hash_code() in hashes


def make_full(monkeypatch):
    """A piece of each part, with all that a full run has."""
    monkeypatch.setattr(merge.sanitize, "UNITS", dict.fromkeys("ab"))
    beyond = make_fuzz([[0, 100]], settings={"least_products": 2**33})
    found = [make_fuzz([[0, 20_000]]), beyond]
    tools = (merge.sanitize.COVER, *merge.sanitize.TOOLS)
    found += [make_sanitize(tool, a=make_unit(), b=make_unit()) for tool in tools]
    return found + [make_soak(run) for run in merge.soak.PARTS]


def make_soak(run, **changes):
    figures = {"threads": 8, "replays": 100_000, "seconds": 480.0} | changes
    return {"part": "soak", "run": run, "meta": META, "wrong": []} | figures


def test_a_full_run_is_called_so(monkeypatch):
    content = merge.merge(make_full(monkeypatch))
    assert "The last full run (commit" in merge.write_table(content)


def test_what_a_tool_tells_asks_for_cutlass(monkeypatch):
    found = make_full(monkeypatch)
    found[3] = make_sanitize("memcheck", a=make_unit("found", 2), b=make_unit())
    table = merge.write_table(merge.merge(found))
    assert "Did not run: memcheck of CUTLASS's own kernels." in table


def test_two_runs_are_given_two_files(tmp_path):
    """Also before either has written its own."""
    names = [pieces.name_piece(tmp_path / "new", "fuzz", "5").name for _ in range(3)]
    assert names == ["fuzz-5-000.json", "fuzz-5-001.json", "fuzz-5-002.json"]
    assert pieces.read_pieces(tmp_path / "new") == []


@pytest.mark.parametrize(
    ("place", "changed", "told"),
    [
        (0, make_fuzz([[0, 19_000]]), "1000 of 20000 random calls"),
        (1, None, "100 of 100 random calls beyond 2^33"),
        (2, None, "cover"),
        (
            2,
            make_sanitize("cover", a=make_unit(), b=make_unit()) | {"missing": ["g"]},
            "cover of 1 kernels",
        ),
        (3, make_sanitize("memcheck", a=make_unit()), "memcheck of 1 units"),
        (8, None, "threads"),
        (8, make_soak("threads", threads=2), "threads of 8 threads, but of 2"),
        (9, make_soak("replays", replays=99), "replays of 100000 replays, but of 99"),
        (10, make_soak("soak", seconds=60.0), "soak of 480 seconds, but of 60"),
    ],
)
def test_what_did_not_run_is_named(monkeypatch, place, changed, told):
    found = make_full(monkeypatch)
    found[place : place + 1] = [] if changed is None else [changed]
    table = merge.write_table(merge.merge(found))
    assert f"Did not run: {told}." in table and "The last run, which is not full (" in table


def leave_out(piece, key):
    return json.dumps({k: v for k, v in piece.items() if k != key})


@pytest.mark.parametrize(
    "text",
    [
        *("", '{"part": "fuzz"', "[]", "{}", '{"meta": {}}', '{"part": "fuzz", "meta": []}'),
        *(leave_out(make_fuzz([[0, 1]]), key) for key in pieces.NEEDED["fuzz"]),
        *(leave_out(make_sanitize("memcheck"), key) for key in pieces.NEEDED["sanitize"]),
        *(leave_out(make_soak("soak"), key) for key in pieces.NEEDED["soak"]),
        json.dumps(make_soak("soak") | {"meta": {k: META[k] for k in META if k != "library"}}),
    ],
)
def test_a_file_that_is_no_piece_is_named(tmp_path, text):
    pieces.write_piece(tmp_path / "fuzz-1-000.json", make_fuzz([[0, 10]]))
    (tmp_path / "fuzz-1-001.json").write_text(text)
    to = ["--to", str(tmp_path / "h100"), "--page", str(tmp_path / "page.md")]
    with pytest.raises(SystemExit, match="fuzz-1-001.json is no piece of a run"):
        merge.main(["--out", str(tmp_path), *to])


def test_a_run_without_a_gpu_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces.torch.cuda, "is_available", lambda: False)
    for part in (["fuzz"], ["soak", "--part", "soak"]):
        with pytest.raises(SystemExit, match="needs a CUDA GPU"):
            trust.main([*part, "--commit", "c", "--out", str(tmp_path)])


def test_a_run_that_finds_a_damaged_piece_names_it(tmp_path, monkeypatch):
    """It goes on where others stopped, and cannot tell where that was."""
    (tmp_path / "fuzz-1-000.json").write_text("{")
    command = ["fuzz", "--device", "cpu", "--commit", "c", "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="fuzz-1-000.json is no piece of a run"):
        trust.main(command)


@pytest.mark.parametrize("gpu", ["cpu", "h200"])
def test_results_of_another_gpu_are_refused(tmp_path, gpu):
    pieces.write_piece(tmp_path / "fuzz-1-000.json", make_fuzz([[0, 9]], meta=META | {"gpu": gpu}))
    with pytest.raises(SystemExit, match=f"must be the folder of {gpu}, got .*h100"):
        merge.main(["--out", str(tmp_path), "--to", str(tmp_path / "h100")])
    assert not (tmp_path / "h100").exists()


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


def test_of_many_kernels_some_are_named():
    assert merge.name_some("abc") == "a, b, c"
    assert merge.name_some(dict.fromkeys("abcde")) == "a, b, c and 2 more"
