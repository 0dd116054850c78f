"""The tables and the picture of steps of training. All times are made up."""

import json

import pytest
from result_rows import META, make_row

from bench import plot, readme
from bench.plotting.potentials import draw_potentials
from bench.plotting.training import NAMES, TABLES, TASKS
from bench.steps.cases import DEPTHS, MODELS, WIDTHS


def make_step(model, shape, times, precision="ieee", weight="new", **more):
    m, n, k = shape
    size = {"suite": "training", "M": m, "N": n, "K": k, "weight": weight, "grad": True}
    return [
        make_row(model, "train", precision, name, ms, **{"wall_ms": 2 * ms, **size, **more})
        for name, ms in times.items()
    ]


def write(tmp_path, rows):
    (tmp_path / "training.json").write_text(json.dumps({"meta": META, "rows": rows}))
    return readme.write_training(tmp_path)


def read_tables(tmp_path, rows):
    """The lines of each, its titles first."""
    parts = write(tmp_path, rows).split("| step of")[1:]
    tables = [list_cells("| step of" + part) for part in parts]
    return [[lines[0], *lines[2:]] for lines in tables]


def list_cells(text):
    return [line[2:-2].split(" | ") for line in text.splitlines() if line[:1] == "|"]


def test_every_model_has_a_name():
    names = {name for name, model in MODELS.items() if model.kind != "potential"}
    assert names == NAMES.keys()
    assert {MODELS[name].word for name in MODELS.keys() - names} == TASKS.keys()


HEAD = ["step of", "M x N x K", 'fp32 `"ieee"`', "bf16"]


def test_layers_stand_beside_peers_and_products(tmp_path):
    times = {"ours": 1.0, "ours_compile": 0.5, "eager": 2.0, "compile": 1.6, "bare_products": 0.8}
    rows = make_step("12", (4096, 1024, 1024), times)
    rows += make_step("12", (1024, 8192, 8192), {"eager": 2.0})
    rows += make_step("12", (4096, 1024, 1024), {"ours": 9.0, "eager": 1.0}, weight="kept")
    rows += make_step("33", (1024, 8192, 8192), {"ours": 1.0, "eager": 0.5}, "bf16")
    rows += make_step("84", (1024, 8192, 8192), {"ours": 1.0, "bare_products": 0.5}, "bf16")
    assert write(tmp_path, rows).startswith("Steps of training (commit abc")
    (table,) = read_tables(tmp_path, rows)
    assert table == [
        HEAD,
        [NAMES["12"], "4096 x 1024 x 1024", "**1.60 / 1.25** (1.00)", ""],
        [NAMES["33"], "1024 x 8192 x 8192", "", "**0.50 / -** (1.00)"],
        [NAMES["84"], "1024 x 8192 x 8192", "", "**- / 2.00** (1.00)"],
    ]


def test_whole_models_are_on_the_clock_of_the_host(tmp_path):
    times = {"ours": 1.0, "ours_graphs": 0.25, "eager": 3.0, "compile": 9.0, "compile_graphs": 0.5}
    rows = make_step("pinn", (10000, 1, 2), times)
    rows += make_step("vit_mlp", (3152, 768, 768), {"ours": 1.0, "eager": 0.5}, "bf16", wall_ms=4.0)
    (table,) = read_tables(tmp_path, rows)
    assert table == [
        HEAD,
        [NAMES["pinn"], "10000 x 1 x 2", "**3.00 / - / 2.00** (2.00 / - / 0.500)", ""],
        [NAMES["vit_mlp"], "3152 x 768 x 768", "", "**1.00 / - / -** (4.00 / - / -)"],
    ]


def test_potentials_are_means_by_width(tmp_path):
    rows = []
    for depth, ms in ((3, 2.0), (5, 8.0)):
        shape = 16384, 128, 128
        rows += make_step(f"forces_{depth}", shape, {"ours": 1.0, "eager": ms}, wall_ms=3.0)
    rows += make_step("force_step_8", (16384, 64, 64), {"ours": 1.0, "eager": 0.5}, "tf32")
    rows += make_step("energies_3", (16384, 64, 64), {"eager": 2.0})
    (table,) = read_tables(tmp_path, rows)
    assert table == [
        ["step of", "64", "128"],
        ['forces, fp32 `"ieee"`', "", "**4.00 / 1.00**"],
        ['loss of forces, fp32 `"tf32"`', "**0.50 / 0.50**", ""],
    ]


def test_memory_is_of_the_widest_potentials(tmp_path):
    rows = make_step("12", (4096, 1024, 1024), {"ours": 1.0, "ours_compile": 1.0}, peak_mib=64.0)
    rows += make_step("12", (4096, 1024, 1024), {"eager": 1.0, "compile": 1.0}, peak_mib=32.0)
    # Some compilers give back more than they take.
    rows += make_step("vit_mlp", (3152, 768, 768), {"eager": 1.0}, "bf16", peak_mib=0.0)
    rows += make_step("vit_mlp", (3152, 768, 768), {"ours": 1.0}, "bf16", peak_mib=8.0)
    for width in (64, 512):
        shape = 16384, width, width
        rows += make_step("forces_5", shape, {"ours": 1.0, "eager": 1.0}, peak_mib=float(width))
    *_, table = read_tables(tmp_path, rows)
    assert table == [
        HEAD,
        [NAMES["12"], "4096 x 1024 x 1024", "**0.50 / 0.50** (64.0 / 64.0)", ""],
        [NAMES["vit_mlp"], "3152 x 768 x 768", "", "**- / -** (8.00 / -)"],
        ["forces, 5 layers", "16384 x 512 x 512", "**1.00 / -** (512 / -)", ""],
    ]


def test_parts_without_rows_are_left_out(tmp_path):
    assert write(tmp_path, []) == "" and len(TABLES) == 4
    text = write(tmp_path, make_step("pinn", (10000, 1, 2), {"ours": 1.0, "eager": 2.0}))
    assert text.count("| step of") == 1 and "otentials" not in text


# ---- the picture ----


def make_potentials(ours=1.0, eager=1.25):
    return [
        row
        for task in TASKS
        for depth in DEPTHS
        for width in WIDTHS
        for precision in ("ieee", "tf32")
        for row in make_step(
            f"{task}_{depth}", (16384, width, width), {"ours": ours, "eager": eager}, precision
        )
    ]


def test_a_cell_for_each_potential(figures, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "potentials.png"
    rows = make_potentials()
    # The host's clock says something else of one of them.
    rows[0] |= {"wall_ms": 5.0}
    draw_potentials(rows, "h200", path)
    assert 5_000 < path.stat().st_size < 500_000
    *panels, _ = figures[0].axes
    titles = [axes.get_title(loc="left") for axes in panels]
    clocks = ("the GPU's time", "the host's clock")
    assert titles == [f'fp32 "{name}", {clock}' for name in ("ieee", "tf32") for clock in clocks]
    texts = [{text.get_position(): text.get_text() for text in axes.texts} for axes in panels]
    assert [len(found) for found in texts] == [len(TASKS) * len(DEPTHS) * len(WIDTHS)] * 4
    assert texts[1].pop((0, 0)) == "0.50"
    assert {text for found in texts for text in found.values()} == {"1.25"}
    labels = [label.get_text() for label in panels[0].get_yticklabels()]
    assert labels[0] == "energies, 3 layers" and labels[-1] == "loss of forces, 8 layers"
    assert [label.get_text() for label in panels[2].get_xticklabels()] == [*map(str, WIDTHS)]
    boxes = [text.get_window_extent() for axes in panels for text in axes.texts]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_the_picture_is_drawn_and_then_shown(tmp_path):
    pytest.importorskip("matplotlib")
    text = write(tmp_path, make_potentials())
    assert "![" not in text
    assert plot.main(["--results", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.glob("*.png")] == ["potentials.png"]
    shown = f"![Eager PyTorch over ours: potentials](results/{tmp_path.name}/potentials.png)\n"
    assert readme.write_training(tmp_path) == f"{text}\n{shown}"


def test_nothing_is_drawn_of_others(tmp_path):
    pytest.importorskip("matplotlib")
    rows = make_step("12", (4096, 1024, 1024), {"ours": 1.0, "eager": 2.0})
    rows += make_step("forces_5", (16384, 64, 64), {"eager": 2.0})
    with pytest.raises(ValueError, match="no step of a potential"):
        draw_potentials(rows, "h200", tmp_path / "a.png")
    write(tmp_path, rows)
    with pytest.raises(SystemExit, match="holds no rows to draw in .* or training.json"):
        plot.main(["--results", str(tmp_path)])
