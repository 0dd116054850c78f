"""The pictures: bars, points, files of sane size, errors. All times are made up."""

import json
import sys

import pytest

pytest.importorskip("matplotlib")

from pictures import list_texts, read_size
from result_rows import ACCURACY, EVERYTHING, LAYERS, META, MS, SWEEP, make_layer_row, make_row

from bench import plot
from bench.measure.results import MODELS, PRECISIONS, VARIANTS, InvalidResult
from bench.plotting import accuracy as plotting_accuracy
from bench.plotting import products as plotting_products
from bench.plotting import roofline as plotting_roofline
from bench.plotting import roofs as plotting_roofs
from bench.plotting.training import PAIRS
from cutlass_fused.comparison import drawing

# ---- the bars ----


@pytest.mark.parametrize(
    "rows, panels, bars",
    [
        ([make_row(variant=name) for name in ("ours", "eager")], 1, 1),
        # The three models of the demo: the third panel stands alone in its line.
        (
            [
                make_row(*case, precision, name)
                for case in (("12", "eval"), ("33", "train"), ("84", "train"))
                for precision in PRECISIONS
                for name in ("ours", "eager", "compile")
            ],
            3,
            3 * 4 * 2,
        ),
        # Every variant is a bar, but eager and the product, which are lines.
        (EVERYTHING, 8, 8 * 4 * (len(MS) - 2)),
    ],
    ids=["one", "demo", "everything"],
)
def test_speedups(rows, panels, bars, figures, tmp_path):
    path = tmp_path / "speedups.png"
    drawing.draw_speedups(rows, path)
    width, height = read_size(path)
    assert width == 1800 and 300 < height < 1.2 * width
    assert 5_000 < path.stat().st_size < 500_000
    (figure,) = figures
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == panels
    assert sum(len(axes.patches) for axes in shown) == bars


def test_bars_stand_on_eager(figures, tmp_path):
    rows = [make_row(variant=name) for name in ("eager", "ours", "compile", "bare_product")]
    rows += [make_row(precision="tf32", variant="eager"), make_row(precision="tf32", ms=4.0)]
    drawing.draw_speedups(rows, tmp_path / "a.png")
    (axes,) = figures[0].axes
    bars = [(bar.get_y(), round(bar.get_height(), 3)) for bar in axes.patches]
    # In the order of the precisions; half as fast hangs below.
    assert bars == [(1, -0.5), (1, 1.5), (1, 0.25)]
    low, high = axes.get_ylim()
    assert low < 0.5 and high > 2.5 and axes.get_yscale() == "log"
    assert list_texts(axes) == ["TF32", "ours 0.50", "bf16", "ours 2.50"]
    assert axes.get_title(loc="left").endswith("inference, M=1024, K=N=8192")
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend[0] == "ours" and len(legend) == 4


def list_boxes(figure):
    """(text, where it stands) for all texts, without tick labels that lie outside of their axis."""
    texts = [*figure.legends[0].get_texts()]
    texts += [text for part in figure.subfigs for text in part.texts]
    boxes = []
    for axes in (axes for axes in figure.axes if axes.get_visible()):
        texts = [*texts, axes._left_title, *axes.texts]
        frame = axes.get_window_extent()
        for label in axes.get_xticklabels():
            box = label.get_window_extent()
            if label.get_visible() and frame.x0 <= (box.x0 + box.x1) / 2 <= frame.x1:
                boxes.append((label.get_text(), box))
        for label in axes.get_yticklabels():
            box = label.get_window_extent()
            if label.get_visible() and frame.y0 <= (box.y0 + box.y1) / 2 <= frame.y1:
                boxes.append((label.get_text(), box))
    boxes += [(text.get_text(), text.get_window_extent()) for text in texts]
    return [(text, box) for text, box in boxes if text]


def test_texts_do_not_overlap(figures, tmp_path):
    drawing.draw_speedups(EVERYTHING, tmp_path / "a.png")
    layers = plotting_roofs.compute_points(LAYERS)
    models = plotting_roofs.compute_points(EVERYTHING)
    plotting_roofline.draw_roofline(models, layers, "h200", tmp_path / "b.png")
    plotting_accuracy.draw_accuracy(ACCURACY, "h200", tmp_path / "c.png")
    for figure in figures:
        boxes = list_boxes(figure)
        assert len(boxes) > 20
        for i, (text, box) in enumerate(boxes):
            assert 0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
            for other, other_box in boxes[:i]:
                assert not box.overlaps(other_box), f"{text} on {other}"


def test_rows_of_the_demo_need_no_more_than_it_has(tmp_path):
    keys = ("model", "mode", "precision", "variant", "ms")
    rows = [make_row(variant=name) for name in ("ours", "eager")]
    rows = [{key: row[key] for key in keys} for row in rows]
    drawing.draw_speedups(rows, tmp_path / "a.png")
    assert read_size(tmp_path / "a.png")


def test_cases_without_eager_are_left_out():
    rows = [make_row(variant="eager"), make_row(), make_row("33", "train")]
    assert list(drawing.group_rows(rows)) == [("12", "eval")]
    with pytest.raises(ValueError, match="without eager"):
        drawing.group_rows(rows[1:])
    with pytest.raises(ValueError, match="eager is there twice"):
        drawing.group_rows(rows[:1] * 2)


def test_every_variant_model_and_precision_has_its_look():
    points = {variant for variant, _ in plotting_accuracy.LOOKS}
    drawn = {*drawing.BARS, drawing.PRODUCT, drawing.BASELINE} | points
    compared_with = {plotting_roofs.COPY, plotting_products.CUBLAS}
    # Steps of training are in tables alone.
    in_tables = {name for pair in PAIRS for name in pair} | {"bare_products"}
    in_tables |= {"first_call", "cached_call", "ours_compile_graphs", "ours_replays"}
    of_programs = {"identity", "compiled"}
    assert drawn | compared_with | in_tables | of_programs == set(VARIANTS)
    assert drawing.MODELS.keys() == set(MODELS) and set(drawing.PRECISIONS) == set(PRECISIONS)
    looks = [(colour, hatch) for _, colour, hatch in drawing.BARS.values()]
    assert len(set(looks)) == len(looks)


def test_equal_rows_make_equal_files(tmp_path):
    rows = [make_row(variant=name) for name in ("ours", "eager")]
    drawing.draw_speedups(rows, tmp_path / "a.png")
    drawing.draw_speedups(rows, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_missing_matplotlib_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        drawing.draw_speedups(EVERYTHING, tmp_path / "a.png")
    write_results(tmp_path, models=EVERYTHING)
    with pytest.raises(SystemExit, match="pip install matplotlib"):
        plot.main(["--results", str(tmp_path)])


# ---- the roofline ----


def test_points_of_a_model():
    rows = [make_row(variant=name) for name in ("ours", "eager", "compile", "bare_product")]
    flops = 2 * 1024 * 8192 * 8192
    bytes_moved = 2 * (1024 * 8192 + 8192 * 8192 + 1024 * 8192)
    # The product is no peer, though it is the fastest.
    assert plotting_roofs.compute_points(rows) == [
        ("12", "bf16", True, flops / bytes_moved, pytest.approx(flops / 0.8e-3 / 1e12)),
        ("12", "bf16", False, flops / bytes_moved, pytest.approx(flops / 1.6e-3 / 1e12)),
    ]
    (tf32, _) = plotting_roofs.compute_points([row | {"precision": "tf32"} for row in rows])
    assert tf32.intensity == flops / bytes_moved / 2


def test_copy_is_no_point():
    points = plotting_roofs.compute_points(LAYERS)
    copies = [row | {"variant": "copy", "ms": 1e-3} for row in LAYERS if row["variant"] == "ours"]
    assert copies and plotting_roofs.compute_points([*LAYERS, *copies]) == points


def test_points_of_a_layer_are_below_the_memory_by_its_share():
    """At 2 TB/s it does 2e12 times its FLOP per byte, a second."""
    for row, flop_per_byte in (
        (make_layer_row(), 5 / 4),
        (make_layer_row(precision="ieee"), 5 / 8),
        (make_layer_row("batch_norm", "train"), 7 / 6),
    ):
        (point,) = plotting_roofs.compute_points([row])
        assert point.intensity == pytest.approx(flop_per_byte)
        assert point.tflops == pytest.approx(2 * flop_per_byte)


def test_training_goes_before_eval_and_fp16_is_left_out():
    rows = [make_row(mode=mode, ms=ms) for mode, ms in (("eval", 1.0), ("train", 2.0))]
    (point,) = plotting_roofs.compute_points(rows)
    assert point.tflops == pytest.approx(2 * 1024 * 8192 * 8192 / 2e-3 / 1e12)
    assert plotting_roofs.compute_points([make_row(precision="fp16")]) == []


@pytest.mark.parametrize("gpu, lines", [("h200", 5), ("rtx4090", 0)])
def test_roofs_are_those_of_the_gpu(gpu, lines, figures, tmp_path):
    """The memory's in both panels, and three of arithmetic; none of a GPU that is not known."""
    models = plotting_roofs.compute_points(EVERYTHING)
    layers = plotting_roofs.compute_points(LAYERS)
    plotting_roofline.draw_roofline(models, layers, gpu, tmp_path / "a.png")
    width, height = read_size(tmp_path / "a.png")
    assert width == 1800 and 500 < height < width
    drawn = [line for axes in figures[0].axes for line in axes.lines]
    assert len(drawn) == lines + len(models) + len(layers)
    for axes, points in zip(figures[0].axes, (layers, models), strict=True):
        roofs = [line.get_xydata() for line in axes.lines[len(points) :]]
        for (left, low), (right, high) in roofs:
            assert low == high or (low / left, high / right) == pytest.approx((4.25, 4.25))
    assert sum(len(axes.texts) for axes in figures[0].axes) == min(lines, 3)
    for text in (text for axes in figures[0].axes for text in list_texts(axes)):
        assert "datasheet" in text


def test_every_point_is_in_sight(figures, tmp_path):
    models = plotting_roofs.compute_points(EVERYTHING)
    layers = plotting_roofs.compute_points(LAYERS)
    for gpu in ("h200", "rtx4090"):
        plotting_roofline.draw_roofline(models, layers, gpu, tmp_path / "a.png")
        for axes, points in zip(figures[-1].axes, (layers, models), strict=True):
            for x, y in (line.get_xydata()[0] for line in axes.lines[: len(points)]):
                assert axes.get_xlim()[0] < x < axes.get_xlim()[1]
                assert axes.get_ylim()[0] < y < axes.get_ylim()[1]


# ---- errors ----


def test_a_panel_for_each_kind_and_a_marker_for_each_variant(figures, tmp_path):
    larger = [row | {"M": 2048, "ms": 3.0} for row in ACCURACY if row["K"] == 8192]
    plotting_accuracy.draw_accuracy(ACCURACY + larger, "h200", tmp_path / "a.png")
    width, height = read_size(tmp_path / "a.png")
    assert width == 1800 and 1000 < height < width
    shown = [axes for axes in figures[0].axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in shown]
    assert titles == [*plotting_accuracy.KINDS.values()] * 2 and "log-normal, σ = 0.5" in titles
    looks = [(line.get_color(), line.get_marker()) for line in shown[0].lines]
    assert len(set(looks)) == len(looks) == len(plotting_accuracy.LOOKS)
    for axes in shown:
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        # Times are those of the larger product; it has no others to be joined with over K.
        points = [(3.0, 1e-3)] if axes in shown[:10] else [(64, 0.1), (8192, 0.1)]
        for line in axes.lines:
            assert [*map(tuple, line.get_xydata())] == points
    assert "M=2048, N=8192, K=8192" in figures[0].subfigs[0].texts[0].get_text()


def test_gradients_are_drawn_over_the_batch_and_nowhere_else(figures, tmp_path):
    gradients = [
        make_row(
            *("scaled_both", "eval", "ieee", "ours", 9.0),
            **{"suite": "accuracy", "layout": layout, "M": m, "N": n, "err_column": 0.2},
        )
        for layout, m in (("wgrad", 4096), ("wgrad", 16384), ("dgrad", 4096), ("bmm", 64))
        for n in (64, 1 << 20)
    ]
    plotting_accuracy.draw_accuracy(ACCURACY + gradients, "h200", tmp_path / "a.png")
    *others, last = figures[0].subfigs
    assert len(others) == 2 and "N=1048576, K=8192" in last.texts[0].get_text()
    (axes,) = last.axes
    assert axes.get_title(loc="left") == "scaled both"
    assert [*map(tuple, axes.lines[0].get_xydata())] == [(4096, 0.2), (16384, 0.2)]
    drawn = [line.get_xydata() for part in others for axes in part.axes for line in axes.lines]
    assert all(pairs.max() <= 8192 and 9.0 not in pairs[:, 0] for pairs in drawn)


def test_error_of_0_is_not_drawn_and_nothing_is_told(tmp_path):
    rows = [row | {"rel_err": 0.0} for row in ACCURACY]
    (block,) = plotting_accuracy.list_blocks(rows)
    assert block.x == "K" and len(block.points) == 10
    with pytest.raises(ValueError, match="neither a product with K = 8192"):
        plotting_accuracy.draw_accuracy(ACCURACY[:1], "h200", tmp_path / "a.png")


# ---- the command ----


def write_results(folder, meta=META, **suites):
    for suite, rows in suites.items():
        (folder / f"{suite}.json").write_text(json.dumps({"meta": meta, "rows": rows}))


@pytest.mark.parametrize(
    "suites, names",
    [
        ({"models": EVERYTHING, "memory_bound": LAYERS}, ["roofline.png", "speedups.png"]),
        ({"models": EVERYTHING[: len(MS)]}, ["roofline.png", "speedups.png"]),
        ({"memory_bound": LAYERS}, ["roofline.png"]),
        ({"sweep": SWEEP}, ["sweep.png"]),
        ({"models": EVERYTHING, "sweep": SWEEP}, ["roofline.png", "speedups.png", "sweep.png"]),
        ({"accuracy": ACCURACY}, ["accuracy.png"]),
        ({"accuracy": ACCURACY[1:2]}, ["accuracy.png"]),
        # One sum of another length: there is no time to draw, and no line over K.
        ({"memory_bound": LAYERS, "accuracy": ACCURACY[:1]}, ["roofline.png"]),
        # The picture is of model 12 in bf16.
        ({"memory_bound": LAYERS, "sweep": [r | {"model": "33"} for r in SWEEP]}, ["roofline.png"]),
    ],
    ids=[
        *("both", "models", "layers", "sweep", "models and sweep"),
        *("accuracy", "accuracy of one K", "accuracy of another", "sweep of something else"),
    ],
)
def test_what_is_there_is_drawn(suites, names, tmp_path):
    write_results(tmp_path, **suites)
    out = tmp_path / "new" / "folder"
    assert plot.main(["--results", str(tmp_path), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == names


def test_committed_results_are_drawn(tmp_path):
    assert plot.main(["--out", str(tmp_path)]) == 0
    drawn, committed = (
        {path.name for path in paths}
        for paths in (tmp_path.glob("*.png"), plot.RESULTS.glob("*/*.png"))
    )
    assert drawn == committed == plot.PICTURES.keys()


def test_rows_under_grad_or_in_graphs_are_no_part_of_it(tmp_path):
    rows = [make_row(), make_row(variant="eager")]
    write_results(tmp_path, models=[*rows, make_row(grad=True), make_row(graph=True)])
    assert plot.read_rows(tmp_path, "models") == (META, rows)
    assert plot.read_rows(tmp_path, "models", graph=True) == (META, [make_row(graph=True)])


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"meta": META, "rows": [{"ms": 1}]})])
def test_broken_file_is_told(text, tmp_path):
    (tmp_path / "models.json").write_text(text)
    with pytest.raises(InvalidResult, match="models.json is no result file"):
        plot.draw_results(tmp_path, tmp_path)
    with pytest.raises(SystemExit, match="no result file"):
        plot.main(["--results", str(tmp_path)])


def test_file_that_cannot_be_read_or_written_is_told(tmp_path):
    with pytest.raises(
        SystemExit, match="nowhere holds no rows to draw in models.json, memory_bound"
    ):
        plot.main(["--results", str(tmp_path / "nowhere")])
    (tmp_path / "memory_bound.json").mkdir()
    write_results(tmp_path, models=EVERYTHING)
    with pytest.raises(SystemExit, match="memory_bound.json cannot be read: Is a directory"):
        plot.main(["--results", str(tmp_path)])
    (tmp_path / "memory_bound.json").rmdir()
    with pytest.raises(SystemExit, match="models.json.* cannot be written"):
        plot.main(["--results", str(tmp_path), "--out", str(tmp_path / "models.json" / "folder")])


def test_nothing_to_draw_and_two_gpus_are_told(tmp_path):
    with pytest.raises(InvalidResult, match="holds no rows"):
        plot.draw_results(tmp_path, tmp_path)
    write_results(tmp_path, models=EVERYTHING)
    write_results(tmp_path, META | {"gpu": "a100"}, memory_bound=LAYERS)
    with pytest.raises(InvalidResult, match="several GPUs: a100, h200"):
        plot.draw_results(tmp_path, tmp_path)
    write_results(tmp_path, memory_bound=LAYERS)
    write_results(tmp_path, META | {"gpu": "l40"}, sweep=SWEEP)
    with pytest.raises(InvalidResult, match="several GPUs: h200, l40"):
        plot.draw_results(tmp_path, tmp_path)
