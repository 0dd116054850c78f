"""The tables, the picture and the limits of bench.epilogues. All times are made up."""

import json

import pytest
from result_rows import META

from bench import plot, readme
from bench.epilogues import lines
from bench.epilogues.cases import LARGE, PARTS, SHORT, list_cases, list_variants
from bench.epilogues.programs import PROGRAMS
from bench.measure.results import check_row
from bench.plotting.epilogues import picture, ratios

MS = {"ours": 0.8, "identity": 0.78, "compiled": 0.8, "eager": 2.0, "compile": 1.6}
MS |= {"max_autotune": 1.5, "bare_product": 0.75, "bare_products": 0.75, "copy": 0.1}
FRESH = {
    "first_call": {"ms": 4e3, "kernels": 1, "wall_ms": 4.5e3},
    "cached_call": {"ms": 8.5, "kernels": 0, "wall_ms": 520.0},
}


def make_rows(parts, **changes):
    """Of the cases of these parts; `changes` are times of variants."""
    rows = []
    for case in list_cases(parts):
        for name in list_variants(case):
            row = case.describe("epilogues")
            ms = FRESH[name]["ms"] if name in FRESH else (MS | changes)[name]
            row |= {"variant": name, "ms": ms, "ms_min": ms, "ms_max": ms, "rel_err": 1e-3}
            row |= FRESH.get(name, {}) | ({"gbps": 3000.0} if name == "copy" else {})
            check_row(row)
            rows.append(row)
    return rows


@pytest.fixture
def folder(tmp_path):
    def write(rows):
        (tmp_path / "epilogues.json").write_text(json.dumps({"meta": META, "rows": rows}))
        return tmp_path

    return write


# ---- the ratios ----


def test_ratios_are_of_one_case():
    rows = make_rows(["large", "first"])
    found = ratios.collect(rows)
    assert len(found) == 18 and not any("first_call" in variants for variants in found.values())
    assert list(found)[0] == ratios.Case("identity", "bf16", *LARGE)
    gate = found[ratios.Case("gate", "bf16", *SHORT)]
    assert ratios.compare_with_peers(gate) == 1.5 / 0.8
    assert ratios.compare_with_peers(gate, ratios.SIMPLE_PEERS) == 1.6 / 0.8
    assert ratios.compare_with(gate, "identity") == 0.8 / 0.78
    assert ratios.compare_with({"ours": gate["ours"]}, "identity") is None
    assert ratios.compare_with_peers({"ours": gate["ours"]}) is None
    assert ratios.compare_with_peers({"eager": gate["eager"]}) is None
    assert len(ratios.collect(rows, fresh=True)) == 5


# ---- the tables ----


def list_cells(text):
    return [line.strip("|\n ").split(" | ") for line in text.splitlines() if line[:1] == "|"]


def test_tables(folder):
    path = folder(make_rows(["large", "fp32", "first", "users", "steps"]))
    text = readme.write_epilogues(path)
    assert "Epilogues that users write (commit abc, 2026-11-21, one NVIDIA H200" in text
    cells = list_cells(text)
    assert cells[0][1:] == [
        "bf16, 1024 x 8192 x 8192",
        "bf16, 8192 x 4096 x 512",
        'fp32 `"ieee"`, 1024 x 8192 x 8192',
    ]
    assert cells[2][:2] == ["none", "**2.00 / -** (0.800)"]
    by_name = {line[0]: line for line in cells[2:11]}
    elements = (each for each in PROGRAMS.values() if not each.adds_along_rows)
    assert set(by_name) == {program.label for program in elements}
    assert by_name["bias, SiLU, gate"][1:] == [
        *["**1.88 / 1.03** (0.800)"] * 2,  # max-autotune
        "**2.00 / 1.03** (0.800)",
    ]
    users = cells[11:31]
    assert users[0][2:] == [
        *("bf16", "bf16, training step", 'fp32 `"ieee"`', 'fp32 `"ieee"`, training step')
    ]
    # By N and K, then by M; two of six shapes are trained.
    assert [line[1] for line in users[2:8]] == [
        f"{m} x {n} x 512" for n in (512, 2048) for m in (16, 256, 4096)
    ]
    assert [line[3] != "" for line in users[2:8]] == [False, True, False, False, False, True]
    assert users[3][2:] != [""] * 4 and users[2][2] == "**2.00** (0.800)"
    assert cells[31] == [
        *("epilogue", "kernels linked", "first call, s", "from the cache, ms", "with tracing, ms")
    ]
    assert cells[33][1:] == ["1", "4.00", "8.50", "520"]
    assert len(cells) == 31 + 2 + 5
    assert "![" not in text
    (path / "epilogues.png").write_bytes(b"")
    assert f"](results/{path.name}/epilogues.png)" in readme.write_epilogues(path)


def test_what_was_not_measured_is_in_no_table(folder, tmp_path):
    assert readme.write_epilogues(tmp_path) == ""
    text = readme.write_epilogues(folder(make_rows(["first"])))
    assert len(list_cells(text)) == 2 + 5 and "one NVIDIA H200" in text
    rows = [row for row in make_rows(["large"]) if row["variant"] != "ours"]
    assert readme.write_epilogues(folder(rows)) == ""


# ---- the picture ----


def test_bars_begin_at_one(figures, tmp_path):
    pytest.importorskip("matplotlib")
    rows = make_rows(["large", "fp32", "others"])
    for row in rows:
        if (row["model"], row["variant"]) == ("residual", "ours"):
            row["ms"] = 3.2
    picture.draw_epilogues(rows, "h200", tmp_path / "a.png")
    (figure,) = figures
    # fp16 is left out.
    assert len(figure.axes) == 4
    place = list(PROGRAMS).index("residual")
    for axes in figure.axes:
        assert len(axes.patches) == 9
        spans = [(bar.get_x(), round(bar.get_width(), 3)) for bar in axes.patches]
        assert spans[place] == (1, -0.5) and spans[0] == (1, 1.0)
        assert axes.patches[place].get_facecolor() != axes.patches[0].get_facecolor()
        assert axes.texts[place].get_text() == "0.50"
    with pytest.raises(ValueError, match="no program"):
        picture.draw_epilogues(make_rows(["users"]), "h200", tmp_path / "b.png")


def test_texts_of_the_picture_do_not_overlap(figures, tmp_path):
    pytest.importorskip("matplotlib")
    picture.draw_epilogues(make_rows(["large", "fp32", "others"]), "h200", tmp_path / "a.png")
    (figure,) = figures
    figure.canvas.draw()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in (*axes.texts, axes._left_title)]
        frame = axes.get_tightbbox()
        for index, box in enumerate(boxes):
            assert box.x1 <= figure.bbox.x1 and frame.x0 >= 0
            assert not any(box.overlaps(other) for other in boxes[:index])
    ends = [axes._left_title.get_window_extent() for axes in figure.axes]
    assert all(one.x1 < other.x0 for one, other in zip(ends, ends[1:], strict=False))


def test_picture_is_drawn_from_the_file(folder):
    pytest.importorskip("matplotlib")
    path = folder(make_rows(["large"]))
    assert plot.draw_results(path, path / "drawn") == [path / "drawn/epilogues.png"]


# ---- the limits ----


def list_limits(program, precision="bf16", shape=LARGE, **times):
    part = {"bf16": "large", "ieee": "fp32", "tf32": "others"}[precision]
    rows = make_rows([part], **times)
    case = ratios.Case(program, precision, *shape)
    found = lines.list_call_limits(case, ratios.collect(rows)[case])
    return {limit.what: limit for limit in found}


@pytest.mark.parametrize(
    "program, shape, most",
    [
        ("affine", LARGE, 1.03),
        ("affine", SHORT, 1.08),
        ("scale_leaky_relu", LARGE, 1.03),
        ("gelu", LARGE, 1.06),
        ("gelu_tanh", SHORT, 1.20),
        ("silu", SHORT, 1.20),
    ],
)
def test_limits_over_the_product_alone(program, shape, most):
    for ours, is_kept in ((most - 0.001, True), (most + 0.001, False)):
        limit = list_limits(program, shape=shape, ours=ours, identity=1.0)["ours/identity"]
        assert limit.most == most and limit.is_kept == is_kept
        assert f"at most {most:.3f}: {'kept' if is_kept else 'MISSED'}" in str(limit)
    assert "ours/identity" not in list_limits("identity")
    assert "ours/identity" not in list_limits("two_outputs")
    assert "ours/identity" not in list_limits("affine", "tf32")


def test_an_operand_may_take_the_time_of_its_copy():
    # 2 bytes for each of 1024 x 8192 elements, at 3000e9 bytes a second.
    copied = 2 * 1024 * 8192 / 3e9
    for name in ("residual", "gate"):
        limit = list_limits(name, identity=0.2, ours=0.2)["ours/identity"]
        assert limit.most == pytest.approx(1 + 1.15 * copied / 0.2)
        slower = list_limits(name, identity=0.2, ours=0.2 + 1.16 * copied)
        assert limit.is_kept and not slower["ours/identity"].is_kept


def test_limits_beside_peers_and_the_compiled_kernel():
    assert list_limits("gate", eager=0.81, compile=0.9)["better of eager, compile/ours"].is_kept
    # max-autotune, which is at 1.5, is another peer.
    slower = list_limits("gelu", eager=0.79)
    assert not slower["better of eager, compile/ours"].is_kept
    assert [limit.is_kept for limit in slower.values()] == [True, False]
    for name, least in (("gelu", 4.5), ("gate", 1.0), ("residual", 1.0)):
        assert list_limits(name, "ieee")["better of eager, compile/ours"].least == least
    assert list_limits("gelu", "tf32")["better of eager, compile/ours"].least == 1.0
    for compiled, is_kept in ((0.8, True), (0.79, False)):
        limits = list_limits("scale_leaky_relu", "ieee", compiled=compiled)
        assert limits["ours/compiled"].is_kept == is_kept


def test_limits_of_first_calls():
    def list_kept(**changes):
        rows = {name: {**row, **changes.get(name, {})} for name, row in FRESH.items()}
        return [limit.is_kept for limit in lines.list_first_limits(rows)]

    assert list_kept() == [True, True]
    assert list_kept(first_call={"ms": 6.1e3}, cached_call={"ms": 10.1}) == [False, False]
    assert list_kept(first_call={"ms": 11e3, "kernels": 2}) == [True, True]
    # What the library came with takes no longer than what the cache has.
    assert list_kept(first_call={"ms": 9.9, "kernels": 0}) == [True, True]
    assert list_kept(first_call={"ms": 10.1, "kernels": 0}) == [False, True]


def test_all_cases_are_told(folder, capsys):
    rows = make_rows(list(PARTS), eager=4.0, compile=3.7, identity=0.8)
    assert lines.main([str(folder(rows))]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(list_cases()) + 1
    assert printed[-1].startswith("0 of ") and "MISSED" not in "".join(printed)
    for row in rows:
        if row["model"] == "silu" and row["variant"] == "identity" and row["N"] == 4096:
            row["ms"] = row["ms_min"] = 0.5
    assert lines.main([str(folder(rows))]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2].startswith("1 of ")
    assert printed[-1].startswith("  silu, bf16, 8192 x 4096 x 512: ours/identity 1.600")
