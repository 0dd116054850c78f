"""The suite products: its committed file, and what the documents say of it."""

import json
import math
import re

import pytest
import torch
from result_rows import META, make_row

from bench import plot, products
from bench.cases.model_shapes import ATTENTIONS, LINEARS
from bench.cases.products import (
    LAYERS,
    LAYOUTS,
    MIXED,
    MIXED_SHAPES,
    NARROW,
    PRECISIONS,
    ROWS,
    SHAPES,
    ProductCase,
    build_operands,
    build_runs,
    list_product_cases,
)
from bench.measure.results import case_of
from bench.plotting.model_products import BATCHES, COLUMNS, collect_model_ratios
from bench.plotting.product_means import LOST, list_ratios, tabulate_means
from bench.plotting.products import PANELS, collect_ratios
from bench.readme import write_products
from build_system.paths import ROOT


@pytest.fixture(scope="module")
def ratios():
    _, rows = plot.read_rows(None, "products", graph=True)
    return collect_ratios(rows)


def test_every_case_has_both_variants(ratios):
    shapes = {(m, n, k) for m in ROWS for n, k in LAYERS}
    assert len(shapes) == 36
    assert ratios.keys() == PANELS.keys()
    assert all(found.keys() == shapes for found in ratios.values())
    cold = collect_ratios(plot.read_rows(None, "products")[1])
    assert {panel: found.keys() for panel, found in cold.items()} == {
        panel: found.keys() for panel, found in ratios.items()
    }


def test_numbers_in_the_text(ratios):
    """Beside those of the table."""
    text = (ROOT / "bench/README.md").read_text()
    section = " ".join(text.split("## fp32 products")[1].split("<!-- end -->")[1].split())
    warm, cold = (
        list_ratios(plot.read_rows(None, "products", graph=graph)[1]) for graph in (True, False)
    )
    slowest = 1 / min(warm.values())
    assert f"The slowest takes {slowest:.2f} times as long as with cuBLAS." in section
    assert f"reach down to {min(cold.values()):.2f}." in section
    assert len(re.findall(r"\d\.\d\d", section)) == 2
    times = {
        (row["layout"], row["weight"], row["N"]): 1e3 * row["ms"]
        for row in plot.read_rows(None, "products", graph=True)[1]
        if row["variant"] == "cublas" and row["precision"] == "ieee" and "source" not in row
        if row["M"] == 16 and row["N"] == row["K"]
    }
    slow = {key: time for key, time in times.items() if ratios[key[:2]][16, key[2], key[2]] > 6}
    assert {(layout, n) for layout, _, n in slow} == {("fwd", 128), ("fwd", 256), ("dgrad", 128)}
    assert f"takes {min(slow.values()):.0f} to {max(slow.values()):.0f} microseconds" in section
    large = max(time for (_, _, n), time in times.items() if n == 1024)
    assert f"and less than {math.ceil(large)} for 1024." in section
    assert len(slow) == 6 and "these six cells" in section


def test_products_in_the_first_document():
    """What README.md says of those under "tf32" in the mean."""
    rows = plot.read_rows(None, "products", graph=True)[1]
    _, lines = tabulate_means(rows)
    cells = [cell for line in lines if "tf32" in line[0] for cell in line[2:] if cell]
    means = [float(cell.split("**")[1]) for cell in cells]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"on an H200 {min(means):.2f} to {max(means):.2f} times as fast as PyTorch's" in text
    least = min(ratio for key, ratio in list_ratios(rows).items() if key[0] == "ieee")
    assert least >= LOST
    claim = 'Under `"ieee"` no product that was timed in CUDA graphs has less than '
    assert f"{claim}{LOST} of the speed of cuBLAS in fp32" in text


def make_times(ratio, **more):
    """Of both variants of a product. All times are made up."""
    part = {"precision": "ieee", "layout": "fwd", "weight": "new", "M": 16, "N": 64, "K": 32}
    sizes = {"suite": "products", "model": "product", "mode": "eval", "graph": True}
    return [
        make_row(variant=name, ms=ms, **{**sizes, **part, **more})
        for name, ms in (("ours", 1.0), ("cublas", ratio))
    ]


def test_table(tmp_path):
    """Means and the least, by precision and kind of shape, then what is slower than cuBLAS."""
    rows = make_times(2.0) + make_times(0.5, M=32) + make_times(4.0, source="some_layer")
    rows += make_times(1.5, layout="bmm", batch=3, source="some_scores")
    rows += make_times(0.8, precision="bf16") + make_times(0.1, layout="mixed", weight="kept")
    (tmp_path / "products.json").write_text(json.dumps({"meta": META, "rows": rows}))
    text = write_products(tmp_path)
    assert text.startswith("Products (commit abc, 2026-11-21, one NVIDIA H200")
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line[:1] == "|"]
    assert lines[0] == ["precision", "shapes", "forward, new", "batches"]
    assert lines[2:] == [
        ['fp32 `"ieee"`', "2, grid", "**1.00** (0.50)", ""],
        ['fp32 `"ieee"`', "1, models", "**4.00** (4.00)", "**1.50** (1.50)"],
        ["bf16", "1, grid", "**0.80** (0.80)", ""],
    ]
    assert [line for line in text.splitlines() if line[:1] == "*"] == [
        '* forward, new, fp32 `"ieee"`, 32 x 64 x 32: 0.500.',
        "* forward, bf16, 16 x 64 x 32: 0.800.",
    ]


def test_every_layer_of_a_model_was_timed():
    found, shapes = collect_model_ratios(plot.read_rows(None, "products", graph=True)[1])
    assert shapes.keys() == LINEARS.keys() | ATTENTIONS.keys()
    assert found.keys() == COLUMNS.keys() | {BATCHES}
    assert all(found[column].keys() == LINEARS.keys() for column in COLUMNS)
    assert found[BATCHES].keys() == ATTENTIONS.keys()


def test_cases_differ():
    cases = list_product_cases(list(LAYOUTS), list(PRECISIONS), list(SHAPES))
    keys = {case_of(case.describe("products")) for case in cases}
    of_linears = 5 * (36 + len(LINEARS))
    assert len(LINEARS) >= 50
    assert len(keys) == len(cases) == (of_linears + len(ATTENTIONS)) * len(PRECISIONS)


def test_sizes_of_the_callers():
    cases = list_product_cases(list(LAYOUTS), ["ieee"], list(SHAPES), [(5, 7, 9), (1, 2, 3)])
    assert {(case.m, case.n, case.k, case.source) for case in cases} == {
        (5, 7, 9, ""),
        (1, 2, 3, ""),
    }
    assert len(cases) == 2 * 5 and {case.batch for case in cases} == {1}


@pytest.mark.parametrize(
    ("text", "message"), [("5x7", "must be MxNxK, got 5x7"), ("5x7xa", "a positive integer")]
)
def test_wrong_sizes(text, message, capsys):
    with pytest.raises(SystemExit):
        products.main(["--out", "nowhere", "--sizes", f"1x2x3,{text}"])
    assert message in capsys.readouterr().err


def test_cases_of_16_bits():
    """Twenty shapes; batches are those of models."""
    cases = list_product_cases(list(LAYOUTS), list(NARROW), ["grid"])
    assert len({str(case) for case in cases}) == len(cases) == 3 * 20 * len(NARROW)
    batches = list_product_cases(["bmm"], list(NARROW), list(SHAPES))
    assert len(batches) == len(ATTENTIONS) * len(NARROW)
    assert {case.weight for case in cases + batches} == {"new"}


def make_case(layout, precision, source=""):
    batch = 3 if layout == "bmm" else 1
    return ProductCase(layout, "new", precision, 48, 40, 36, batch, source)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("precision", NARROW)
def test_variants_in_16_bits(precision, layout):
    case = make_case(layout, precision)
    a, b = build_operands(case, "cpu")
    for run in build_runs(case, a, b).values():
        y = run()
        assert y.dtype == a.dtype
        error = products.find_error(y, a, b)
        assert error < products.LARGEST_ERRORS[precision] < 4 * error


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", ["some_scores", "some_values"])
def test_variants_compute_the_same_product(layout, source):
    case = make_case(layout, "ieee", source)
    a, b = build_operands(case, "cpu")
    runs = build_runs(case, a, b)
    ours, cublas = (runs[name]() for name in ("ours", "cublas"))
    shapes = {"fwd": (48, 40), "dgrad": (48, 36), "wgrad": (40, 36), "bmm": (3, 48, 40)}
    assert ours.shape == shapes[layout]
    assert (ours - cublas).abs().max() < 1e-4
    assert products.find_error(ours, a, b) < 1e-6
    assert products.find_error(ours + 1, a, b) > 1e-3


def test_mixed_products():
    """bf16 rows with fp32 weights, which a bench without a word of them leaves out."""
    assert MIXED not in LAYOUTS
    cases = list_product_cases([MIXED], ["ieee"], ["models"])
    assert len(cases) == 2 * len(MIXED_SHAPES)
    # The weight is of fp32: 16 bits alone are no such case.
    assert list_product_cases([MIXED], ["ieee", *NARROW], ["models"]) == cases
    assert list_product_cases([MIXED], list(NARROW), list(SHAPES), [(5, 7, 9)]) == []
    a, b = build_operands(ProductCase(MIXED, "new", "ieee", 48, 40, 36), "cpu")
    runs = build_runs(cases[-1], a, b)
    ours, cublas = (runs[name]() for name in ("ours", "cublas"))
    assert ours.dtype == cublas.dtype == a.dtype == torch.bfloat16 and b.dtype == torch.float32
    assert torch.equal(ours, cublas)
    assert products.find_error(ours, a, b) < products.LARGEST_ERRORS["bf16"]
