"""The suite products: its committed file, and what the documents say of it."""

import re

import pytest
import torch

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
from bench.plotting.products import PANELS, collect_ratios, find_mean
from build_system.paths import ROOT

FOLDER = ROOT / "bench/results/h200"
# So many times as long a shape takes at most, and what the text says of it.
SLOWEST = {
    "ieee": (
        1 + 1 / 50,
        "no shape of both pictures is slower than with cuBLAS by more than a fiftieth",
    ),
    "tf32": (1 + 1 / 40, "None is slower by more than a fortieth."),
}


@pytest.fixture(scope="module")
def ratios():
    _, rows = plot.read_rows(FOLDER, "products", graph=True)
    return collect_ratios(rows)


def test_every_case_has_both_variants(ratios):
    shapes = {(m, n, k) for m in ROWS for n, k in LAYERS}
    assert len(shapes) == 36
    assert ratios.keys() == PANELS.keys()
    assert all(found.keys() == shapes for found in ratios.values())
    cold = collect_ratios(plot.read_rows(FOLDER, "products")[1])
    assert {panel: found.keys() for panel, found in cold.items()} == {
        panel: found.keys() for panel, found in ratios.items()
    }


def test_ratios_in_the_text(ratios):
    text = (ROOT / "bench/README.md").read_text()
    section = text[text.index("## fp32 products") : text.index("## Measuring")]
    means = [f"{find_mean(ratios[panel].values()):.2f}" for panel in PANELS]
    assert re.findall(r"\d\.\d\d", section) == means
    assert min(min(found.values()) for found in ratios.values()) > 0.97


@pytest.mark.parametrize("precision", PRECISIONS)
def test_slower_shapes_in_the_text(precision):
    times = {}
    for row in plot.read_rows(FOLDER, "products", graph=True)[1]:
        if row["precision"] == precision and row["layout"] in LAYOUTS:
            shape = tuple(row.get(name) for name in ("source", "batch", "M", "N", "K"))
            key = row["layout"], row["weight"], shape
            times.setdefault(key, {})[row["variant"]] = row["ms"]
    most, claim = SLOWEST[precision]
    assert max(found["ours"] / found["cublas"] for found in times.values()) < most
    section = " ".join((ROOT / "bench/README.md").read_text().split("## fp32 products")[1].split())
    assert claim in section


def test_every_layer_of_a_model_was_timed():
    found, shapes = collect_model_ratios(plot.read_rows(FOLDER, "products", graph=True)[1])
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
