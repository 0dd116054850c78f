"""The tables and the picture of bench.end_to_end. All times are made up."""

import json

import pytest
from result_rows import META

from bench import plot, readme
from bench.end_to_end import lines
from bench.end_to_end.cases import MODELS, VARIANTS, list_cases
from bench.measure.results import check_row
from bench.plotting.end_to_end import picture, ratios, tables
from bench.plotting.end_to_end.ratios import Case

MS = {"ours": 0.8, "ours_compile": 0.7, "ours_graphs": 0.5, "eager": 2.0, "compile": 1.6}
MS |= {"compile_graphs": 1.0, "ours_compile_graphs": 0.9}

LARGE_BATCHES = [(model, m) for model in MODELS for m in (4096, 16384)]


def make_rows(changes=None, variants=VARIANTS, **which):
    """Of these cases; `changes` are times of variants by (model, batch). By the host's clock all
    times are twice as long, and ours in a graph is three times as long."""
    rows = []
    for case in list_cases(**which):
        for name in variants:
            ms = (changes or {}).get((case.model, case.m), {}).get(name, MS[name])
            wall = (3 if name == "ours_graphs" else 2) * ms
            row = case.describe("end_to_end") | {"variant": name, "ms": ms, "ms_min": ms}
            rows.append(row | {"ms_max": ms, "rel_err": 1e-3, "wall_ms": wall})
            check_row(rows[-1])
    return rows


@pytest.fixture
def folder(tmp_path):
    def write(rows):
        (tmp_path / "end_to_end.json").write_text(json.dumps({"meta": META, "rows": rows}))
        return tmp_path

    return write


def list_cells(text):
    return [line[2:-2].split(" | ") for line in text.splitlines() if line[:1] == "|"]


def test_ratios_are_of_the_best_of_both():
    case = ratios.collect(make_rows(names=["pinn"], precisions=["ieee"], batches=[1]))
    assert [(c.mode, c.m) for c in case] == [("train", 1), ("eval", 1)]
    variants = case[Case("pinn", "eval", "ieee", 1)]
    assert ratios.compare(variants, "ms") == 1.0 / 0.5
    assert ratios.compare(variants, "wall_ms") == 2.0 / 1.4  # ours_compile
    assert ratios.compare({"ours": variants["ours"]}, "ms") is None
    assert ratios.compare({"eager": variants["eager"]}, "ms") is None
    only = {name: variants[name] for name in ("ours", "eager")}
    assert ratios.compare(only, "wall_ms") == 2.5


def test_means_are_over_few_and_many_rows():
    slower = {("pinn", 256): {name: 4.0 for name in ratios.OURS}}
    rows = make_rows(slower, names=["pinn", "vit_mlp"], passes=["inference"])
    found = ratios.collect_ratios(rows, "ms")
    few = ratios.summarize(found, "eval", "ieee", many=False)
    # Of six cases five are at 2, one at a quarter.
    assert few.mean == pytest.approx(2 ** (3 / 6)) and few.worst == 0.25
    assert few.where == Case("pinn", "eval", "ieee", 256)
    assert ratios.summarize(found, "eval", "ieee", many=True).mean == pytest.approx(2)
    assert ratios.summarize(found, "train", "ieee", many=True) is None
    lost = ratios.list_lost(rows)
    assert len(lost) == 3  # one in each precision
    assert lost[0] == "PINN of Burgers' equation, 256 rows, inference, ieee: 0.250"


def test_tables(folder):
    path = folder(make_rows({("moe_router", 16): dict.fromkeys(ratios.OURS, 5.0)}))
    text = readme.write_end_to_end(path)
    assert "Real models (commit abc, 2026-11-21, one NVIDIA H200" in text
    cells = list_cells(text)
    means, models = cells[2:8], cells[10:18]
    assert [line[0] for line in means[:3]] == [
        'inference, fp32 `"ieee"`',
        'inference, fp32 `"tf32"`',
        "inference, bf16",
    ]
    assert means[0][1].endswith("(least 0.20: router of DeepSeekMoE, 16 rows)")
    assert means[0][3].startswith("**1.43**") and means[0][4].startswith("**2.00**")
    assert models[0][:2] == ["mapping network of StyleGAN2", "1 / 16 / 256 / 4096 / 16384"]
    assert models[0][2] == f"**{' / '.join(['1.43'] * 5)}** ({' / '.join(['1.40'] * 5)})"
    # A batch norm is not trained on one row.
    steps = {line[0]: line for line in cells[20:28]}
    assert steps["head of PointNet"][1] == "16 / 256 / 4096 / 16384"
    assert steps["MLP block of ViT-B"][1] == "1 / 16 / 256 / 4096 / 16384"
    assert text.count("router of DeepSeekMoE, 16 rows, ") == 6  # below what is allowed
    assert "![" not in text
    (path / "end_to_end.png").write_bytes(b"")
    assert f"](../results/{path.name}/end_to_end.png)" in readme.write_end_to_end(path)


def test_what_was_not_measured_is_in_no_table(folder, tmp_path):
    assert readme.write_end_to_end(tmp_path) == ""
    assert readme.write_end_to_end(folder(make_rows(variants=["eager"]))) == ""
    rows = make_rows(names=["pinn"], passes=["step"], precisions=["tf32"], batches=[16])
    text = readme.write_end_to_end(folder(rows))
    assert [line[0] for line in list_cells(text)] == [
        *("", "---", 'training step, fp32 `"tf32"`', "model", "---", "PINN of Burgers' equation")
    ]
    assert "Every case below" not in text


def test_cells_of_the_picture(figures, tmp_path):
    pytest.importorskip("matplotlib")
    rows = make_rows({("potential", 1): dict.fromkeys(ratios.OURS, 4.0)})
    picture.draw_end_to_end(rows, "h200", tmp_path / "a.png")
    (figure,) = figures
    panels = figure.axes[:6]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles[0] == 'inference, fp32 "ieee"' and titles[-1] == "training step, bf16"
    # Eight models, five batches; two are not trained on one row.
    assert [len(axes.texts) for axes in panels] == [40] * 3 + [38] * 3
    assert "grey: not timed" in figure._suptitle.get_text()
    texts = [text.get_text() for text in panels[0].texts]
    assert texts.count("0.25") == 1 and texts.count("1.43") == 39
    figure.canvas.draw()
    for axes in panels:
        boxes = [text.get_window_extent() for text in (*axes.texts, axes._left_title)]
        for index, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:index])
    ends = [axes._left_title.get_window_extent() for axes in panels[:3]]
    assert all(one.x1 < other.x0 for one, other in zip(ends, ends[1:], strict=False))
    with pytest.raises(ValueError, match="no real model"):
        picture.draw_end_to_end(make_rows(variants=["ours"]), "h200", tmp_path / "b.png")


def test_picture_is_drawn_from_the_file(folder):
    pytest.importorskip("matplotlib")
    path = folder(make_rows(names=["pinn"], batches=[16]))
    assert plot.draw_results(path, path / "drawn") == [path / "drawn/end_to_end.png"]


def test_every_variant_has_a_side():
    assert {*ratios.OURS, *ratios.PEERS} == set(VARIANTS)
    assert len(tables.TABLES) == 3


# ---- the limits ----


def test_limits_of_a_case():
    pinn = Case("pinn", "eval", "bf16", 16)
    for slower, is_kept in ((0.97, False), (0.99, True)):
        variants = {"ours": {"wall_ms": 1.0, "ms": 1.0}, "eager": {"wall_ms": slower, "ms": 9.0}}
        (limit,) = lines.list_limits(pinn, variants)
        assert limit.is_kept == is_kept
        assert ("MISSED" in lines.describe(pinn, variants, [limit])) != is_kept
        assert "ours beside eager" in lines.describe(pinn, variants, [limit])
    assert lines.list_limits(pinn, {"ours": variants["ours"]}) == []
    # Eager is faster than PyTorch's graph, which has a limit of its own.
    times = {"ours_graphs": 1.0, "eager": 1.1, "compile_graphs": 1.19}
    variants = {name: {"wall_ms": time, "ms": time} for name, time in times.items()}
    assert [limit.is_kept for limit in lines.list_limits(lines.MAPPING, variants)] == [True, False]


def test_limits_of_means():
    limits = lines.list_mean_limits(make_rows(precisions=["ieee", "bf16"]))
    assert len(limits) == 8
    kept = {name for name, limit in limits.items() if limit.is_kept}
    # PyTorch takes 1.43 times as long everywhere.
    assert limits.keys() - kept == {"inference, ieee, many rows", "training step, ieee, many rows"}


def test_all_cases_are_told(folder, capsys):
    rows = make_rows({case: dict.fromkeys(ratios.OURS, 0.1) for case in LARGE_BATCHES})
    assert lines.main([str(folder(rows))]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(list_cases()) + 2 * 3 * 2 + 1
    assert printed[-1].startswith("0 of ") and "MISSED" not in "".join(printed)
    assert lines.main([str(folder(make_rows({("pinn", 16): {"eager": 0.1}})))]) == 1
