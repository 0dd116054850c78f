"""The heat map of bench.sweep. All times are made up."""

import pytest

pytest.importorskip("matplotlib")

from pictures import list_texts, read_size
from result_rows import make_row

from bench.cases import sweep_cases
from bench.plotting import sweep as plotting_sweep


def make_cell(m, n, k, ratio, **more):
    """Ours takes 1 ms, the fastest peer `ratio`; the product, which is none, less."""
    part = {"suite": "sweep", "graph": True, "M": m, "N": n, "K": k, **more}
    times = {"ours": 1.0, "eager": 2 * ratio, "compile": ratio, "bare_product": 0.01}
    return [make_row(variant=name, ms=ms, **part) for name, ms in times.items()]


def make_all(ratio=1.1):
    cells = [make_cell(*shape, ratio) for shape in sweep_cases.EVERYWHERE]
    return [row for cell in cells for row in cell]


def test_a_cell_for_each_shape(figures, tmp_path):
    path = tmp_path / "sweep.png"
    plotting_sweep.draw_sweep(make_all(), "h200", path)
    width, height = read_size(path)
    assert width == 1800 and 600 < height < width
    assert 5_000 < path.stat().st_size < 500_000
    axes, bar = figures[0].axes
    assert list_texts(axes) == ["1.10"] * 130
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        str(m) for m in sweep_cases.SIZES
    ]
    columns = [label.get_text() for label in axes.get_xticklabels()]
    assert columns[0] == "1024\nx 1024" and columns[-1] == "28672\nx 8192" and len(columns) == 10
    assert "H200" in axes.get_title(loc="left")
    assert "1" in [label.get_text() for label in bar.get_yticklabels()]


def list_colours(axes):
    """(red, green, blue) by (column, line)."""
    (image,) = axes.images
    colours = image.to_rgba(image.get_array())
    lines, columns = colours.shape[:2]
    return {(x, y): tuple(colours[y, x, :3]) for x in range(columns) for y in range(lines)}


def test_numbers_and_colours_stand_where_their_shape_is(figures, tmp_path):
    ratios = {(1, 1024, 512): 1.2, (1, 512, 512): 0.96, (8, 512, 512): 1.0, (8, 1024, 512): 9.0}
    rows = [row for shape, ratio in ratios.items() for row in make_cell(*shape, ratio)]
    plotting_sweep.draw_sweep(rows, "h200", tmp_path / "a.png")
    axes = figures[0].axes[0]
    found = {text.get_position(): text for text in axes.texts}
    # The smaller weight is on the left, the fewer rows are above.
    places = {(0, 0): "0.96", (1, 0): "1.20", (0, 1): "1.00", (1, 1): "9.00"}
    assert {place: text.get_text() for place, text in found.items()} == places
    assert [place for place, text in found.items() if text.get_fontweight() == "bold"] == [(0, 0)]
    colours = list_colours(axes)
    red, _, blue = colours[0, 0]
    assert red > blue + 0.05
    red, _, blue = colours[1, 0]
    assert blue > red + 0.05
    assert colours[0, 1] == pytest.approx((1, 1, 1), abs=0.01)
    # The colour is as dark as it can be, with a number that is seen on it.
    assert max(colours[1, 1][:2]) < 0.5 and found[1, 1].get_color() == "white"


def test_half_as_fast_is_as_far_from_white_as_twice_as_fast(figures, tmp_path):
    rows = make_cell(1, 512, 512, 1.25) + make_cell(8, 512, 512, 1 / 1.25)
    plotting_sweep.draw_sweep(rows, "h200", tmp_path / "a.png")
    above, below = figures[0].axes[0].images[0].get_array().ravel()
    assert above == pytest.approx(-below)


def test_shape_that_was_not_measured_is_grey_and_empty(figures, tmp_path):
    rows = make_cell(1, 512, 512, 1.5) + make_cell(8, 1024, 512, 1.5)
    rows += [row for row in make_cell(8, 512, 512, 1.5) if row["variant"] != "ours"]
    plotting_sweep.draw_sweep(rows, "h200", tmp_path / "a.png")
    axes = figures[0].axes[0]
    assert len(axes.texts) == 2
    assert len(set(list_colours(axes)[0, 1])) == 1


def test_only_model_12_in_bf16_is_drawn(tmp_path):
    cell = make_cell(1, 512, 512, 1.5)
    others = [row | {"model": "linear"} for row in cell] + [r | {"precision": "fp16"} for r in cell]
    assert plotting_sweep.take_ratios(cell + others) == {(1, 512, 512): 1.5}
    with pytest.raises(ValueError, match="no shape of model 12 in bf16"):
        plotting_sweep.draw_sweep(others, "h200", tmp_path / "a.png")


def test_numbers_stay_in_their_cells(figures, tmp_path):
    plotting_sweep.draw_sweep(make_all(ratio=12.34), "h200", tmp_path / "a.png")
    axes = figures[0].axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    labels = [label.get_window_extent() for label in axes.get_xticklabels()]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
    for one, other in zip(labels, labels[1:], strict=False):
        assert one.x1 < other.x0
    assert axes.get_tightbbox().x1 < figures[0].bbox.x1


def test_equal_rows_make_equal_files(tmp_path):
    for name in ("a.png", "b.png"):
        plotting_sweep.draw_sweep(make_all(), "h200", tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
