"""The means over the shapes of bench.sweep, and the table of them."""

import json

import pytest

from bench import readme
from bench.measure.results import META
from bench.plotting import sweep_ratios

SHAPES = [(16, 1024, 512), (64, 1024, 512), (128, 1024, 512)]


def make_rows(*cases, **more):
    """A row for each variant of each case, at the shapes above in turn."""
    rows = []
    for shape, variants in zip(SHAPES, cases, strict=False):
        part = {"suite": "sweep", "model": "12", "mode": "eval", "precision": "bf16"}
        part |= dict(zip("MNK", shape, strict=True)) | {"graph": True}
        for variant, ms in variants.items():
            numbers = {"ms": ms, "ms_min": ms, "ms_max": ms, "rel_err": 1e-3}
            rows.append(part | {"variant": variant} | numbers | more)
    return rows


ROWS = make_rows(
    {"ours": 1.0, "eager": 3.0, "compile": 2.0, "cudnn": 4.0, "bare_product": 0.5},
    {"ours": 2.0, "eager": 1.0, "compile": 4.0, "max_autotune": 0.5, "bare_product": 4.0},
    {"ours": 1.0, "eager": 4.0, "compile": 8.0, "cudnn": 2.0, "bare_product": 0.1},
)


def summarize(rows):
    return {
        key: sweep_ratios.summarize(times)
        for key, times in sweep_ratios.collect_times(rows).items()
    }


def test_means_are_geometric_and_the_least_is_named():
    (summary,) = summarize(ROWS).values()
    # 2, 1/2 and 4.
    assert summary.over_simple_peers == (pytest.approx(4 ** (1 / 3)), 0.5, SHAPES[1], 3)
    # 2, 1/4 and 2: each peer counts where it is the fastest. The product is none.
    assert summary.over_peers == (pytest.approx(1.0), 0.25, SHAPES[1], 3)
    # 1/2 and 2: few rows only.
    assert summary.over_product == (pytest.approx(1.0), 0.5, SHAPES[0], 2)


def test_models_and_precisions_stand_apart():
    rows = ROWS + [row | {"precision": "fp16", "ms": 1.0} for row in ROWS]
    found = summarize(rows)
    assert list(found) == [("12", "bf16"), ("12", "fp16")]
    assert (
        found["12", "fp16"].over_peers.mean == 1
        and found["12", "bf16"] == summarize(ROWS)["12", "bf16"]
    )


def test_shapes_without_ours_or_a_peer_do_not_count():
    rows = make_rows({"eager": 3.0}, {"ours": 2.0}, {"ours": 1.0, "eager": 3.0})
    (summary,) = summarize(rows).values()
    assert summary.over_peers == summary.over_simple_peers
    assert summary.over_peers == (pytest.approx(3), 3, SHAPES[2], 1)
    assert summary.over_product is None


@pytest.fixture
def folder(tmp_path):
    def write(rows):
        content = {"meta": dict.fromkeys(META, "any"), "rows": rows}
        (tmp_path / "sweep.json").write_text(json.dumps(content))
        return tmp_path

    return write


def test_table_has_a_line_for_each_model_and_precision(folder):
    linear = make_rows({"ours": 1.0, "eager": 1.25}, model="linear")
    lines = readme.write_sweep(folder(ROWS + linear)).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    assert cells[2:] == [
        [
            "Linear + scale + LeakyReLU (12), bf16",
            "3",
            "**1.587** (least 0.500 at 64 x 1024 x 512)",
            "**1.000** (least 0.250 at 64 x 1024 x 512)",
            "**1.000** (least 0.500 at 16 x 1024 x 512)",
        ],
        ["Linear, bf16", "1", *["**1.250** (least 1.250 at 16 x 1024 x 512)"] * 2],
    ]
    assert len(cells[0]) == 5


def test_without_results_nothing_is_printed(tmp_path, monkeypatch, capsys):
    document = tmp_path / "README.md"
    document.write_text("text\n")
    monkeypatch.setattr(readme, "DOCUMENTS", (document,))
    assert readme.main(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_table_is_written_into_the_document(folder, monkeypatch):
    document = folder(ROWS) / "README.md"
    document.write_text("text\n<!-- results: sweep -->\n<!-- end -->\n")
    monkeypatch.setattr(readme, "DOCUMENTS", (document,))
    assert readme.main(["--results", str(document.parent)]) == 0
    text = document.read_text()
    assert (
        "| Linear + scale + LeakyReLU (12), bf16 | 3 |" in text
        and text.startswith("text\n")
        and text.endswith("end -->\n")
    )


def test_rows_in_no_graph_are_no_part_of_it(folder):
    assert readme.write_sweep(folder([row | {"graph": False} for row in ROWS])) == ""
