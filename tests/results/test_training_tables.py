"""The tables of steps of training. All times are made up."""

import json

from result_rows import META, make_row

from bench import readme
from bench.plotting.training import NAMES, TABLES, TASKS
from bench.steps.cases import MODELS


def make_step(model, shape, times, precision="ieee", weight="new", **more):
    m, n, k = shape
    size = {"suite": "training", "M": m, "N": n, "K": k, "weight": weight, "grad": True}
    return [
        make_row(model, "train", precision, name, ms, wall_ms=2 * ms, **size, **more)
        for name, ms in times.items()
    ]


def write(tmp_path, rows):
    (tmp_path / "training.json").write_text(json.dumps({"meta": META, "rows": rows}))
    return readme.write_training(tmp_path)


def list_cells(text):
    return [line[2:-2].split(" | ") for line in text.splitlines() if line[:1] == "|"]


def test_every_model_has_a_name():
    names = {name for name, model in MODELS.items() if model.kind != "potential"}
    assert names == NAMES.keys()
    assert {MODELS[name].word for name in MODELS.keys() - names} == TASKS.keys()


def test_tables(tmp_path):
    times = {"ours": 1.0, "ours_compile": 0.5, "eager": 2.0, "compile": 0.6, "bare_products": 0.1}
    rows = make_step("vit_mlp", (3152, 768, 768), {"ours": 1.0, "eager": 0.5}, "bf16")
    rows += make_step("12", (4096, 1024, 1024), times)
    rows += make_step("12", (1024, 8192, 8192), {"eager": 2.0})
    rows += make_step("12", (4096, 1024, 1024), {"ours": 9.0, "eager": 1.0}, weight="kept")
    for width, ms in ((64, 1.0), (128, 4.0)):
        rows += make_step("forces_5", (16384, width, width), {"ours": 2.0, "eager": ms * 2})
    rows += make_step("force_step_8", (16384, 64, 64), {"eager": 2.0})
    text = write(tmp_path, rows)
    assert text.startswith("Steps of training (commit abc")
    steps, walls, potentials = map(list_cells, split_tables(text))
    head = ["step of", "M x N x K", 'fp32 `"ieee"`', "bf16"]
    assert steps[0] == walls[0] == head and potentials[0] == head[:3]
    assert steps[2:] == [
        [NAMES["12"], "1024 x 8192 x 8192", "", ""],
        [NAMES["12"], "4096 x 1024 x 1024", "**2.00 / 1.20 / -** (1.00 / 0.500 / -)", ""],
        [NAMES["vit_mlp"], "3152 x 768 x 768", "", "**0.50 / - / -** (1.00 / - / -)"],
    ]
    assert walls[3][2] == "**2.00** (2.00)" and walls[4][3] == "**0.50** (2.00)"
    assert potentials[2:] == [
        ["forces, 5 layers", "16384 x width x width", "**2.00** (least 1.00)"],
        ["loss of forces, 8 layers", "16384 x width x width", ""],
    ]


def split_tables(text):
    """Each from its titles on."""
    return ["| step of" + part for part in text.split("| step of")[1:]]


def test_parts_without_rows_are_left_out(tmp_path):
    assert write(tmp_path, []) == "" and len(TABLES) == 3
    text = write(tmp_path, make_step("pinn", (10000, 1, 2), {"ours": 1.0, "eager": 2.0}))
    assert text.count("| step of") == 2 and "otentials" not in text
