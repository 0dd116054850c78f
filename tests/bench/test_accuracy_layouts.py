"""bench.accuracy without a GPU: gradients and batches, and the errors of columns and of rows."""

import functools
import math

import pytest
import torch

from bench import accuracy
from bench.cases import accuracy_cases, accuracy_inputs, accuracy_variants, products
from bench.cases.accuracy_cases import LAYOUTS, AccuracyCase
from bench.measure import accuracy_errors, checking, results

KINDS = list(accuracy_inputs.INPUTS)
SCALED = ("scaled_outputs", "scaled_terms", "scaled_both")
# (M, N, K, batch): sums of 256 terms or more, of results that are not square.
SHAPES = {
    "fwd": (24, 40, 256, 1),
    "dgrad": (24, 256, 40, 1),
    "wgrad": (4096, 24, 40, 1),
    "bmm": (24, 40, 256, 3),
}
measure = functools.partial(accuracy.measure_product, "cpu", 1)


def make_case(layout="fwd", kind="randn", precision="ieee", shape=None):
    m, n, k, batch = SHAPES[layout] if shape is None else shape
    return AccuracyCase(kind, precision, m, n, k, layout, batch)


def draw(layout="fwd", kind="randn", **more):
    return accuracy_variants.draw_product(make_case(layout, kind, **more), "cpu")


def find_errors(product, y):
    truth = accuracy_errors.compute_product_truth(product.x, product.weight)
    return accuracy_errors.compute_errors(y, truth)


# ---- the cases ----


def test_cases_are_every_kind_layout_and_precision():
    listed = accuracy.list_accuracy_cases(KINDS, accuracy.PRECISIONS, LAYOUTS)
    count = sum(map(len, accuracy_cases.SHAPES.values()))
    assert len(listed) == len(set(listed)) == 10 * 2 * count
    assert LAYOUTS == products.LAYOUTS and accuracy_cases.SHAPES.keys() == set(LAYOUTS)
    for kind in KINDS:
        for precision in ("ieee", "tf32"):
            found = [case for case in listed if (case.model, case.precision) == (kind, precision)]
            depths = {name: [c.depth for c in found if c.layout == name] for name in LAYOUTS}
            assert depths["fwd"] == [1, 8, 32, 64, 256, 1024, 8192, 32768, 131072, 8192]
            assert set(depths["dgrad"]) == {4096, 16384}
            assert set(depths["wgrad"]) == {4096, 16384, 131072}
    large = [case[2:5] for case in listed if case.layout == "fwd" and case.m > 512]
    assert set(large) == {(1024, 8192, 8192)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_say_the_layout(layout):
    case = make_case(layout)
    row = case.describe("accuracy")
    assert row["layout"] == layout and row.get("batch", 1) == case.batch
    assert (accuracy_cases.get_layout(row), accuracy_cases.get_depth(row)) == (layout, case.depth)
    assert f", {layout}, ieee, " in str(case)
    # A row of before there were layouts.
    assert accuracy_cases.get_layout({"K": 7}) == "fwd" and accuracy_cases.get_depth({"K": 7}) == 7


# ---- what they multiply ----


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_lie_as_in_the_products_of_a_linear(layout):
    m, n, k, batch = SHAPES[layout]
    case = products.ProductCase(layout, "new", "ieee", m, n, k, batch)
    product, (a, b) = draw(layout), products.build_operands(case, "cpu")
    for ours, other in ((product.x, a), (product.weight.mT, b)):
        assert ours.shape == other.shape and ours.stride() == other.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_variant_computes_the_product(layout):
    product = draw(layout)
    truth = product.x.double() @ product.weight.double().mT
    for name in ("ours", "eager"):
        y = accuracy_variants.VARIANTS[name](product)()
        assert y.shape == truth.shape and (y - truth).norm() < 1e-6 * truth.norm()


def test_a_batch_holds_different_matrices():
    product = draw("bmm")
    assert not torch.equal(product.x[0], product.x[1])
    assert not torch.equal(product.weight[0], product.weight[1])


def test_three_bf16_products_are_forward_only():
    names = list(accuracy_variants.VARIANTS)
    for layout in LAYOUTS:
        found = accuracy_variants.list_accuracy_variants(names, make_case(layout))
        assert found == (names if layout == "fwd" else ["ours", "eager"])


def test_ours_is_told_the_precision():
    for layout, precision in (("wgrad", "ieee"), ("dgrad", "tf32"), ("bmm", "tf32")):
        run = accuracy_variants.build_ours(draw(layout, precision=precision))
        assert run.keywords == {"precision": precision}


# ---- what scaled matrices hold ----


def list_scales(kind):
    """x, and weight, over what they would hold without scales."""
    for scaled, plain in zip(draw(kind=kind)[1:], draw()[1:], strict=True):
        yield scaled.double() / plain.double()


def spread(scales, dim):
    """By how many binades the scales of a line differ, at least."""
    return (scales.amax(dim) / scales.amin(dim)).log2().min().item()


@pytest.mark.parametrize("kind", SCALED)
def test_scales_are_powers_of_two_from_1e_12_to_1e12(kind):
    for scales in list_scales(kind):
        assert (scales.frexp().mantissa == 0.5).all()
        for dim, is_scaled in ((0, kind != "scaled_terms"), (1, kind != "scaled_outputs")):
            assert 60 < spread(scales, dim) <= 80 if is_scaled else spread(scales, dim) == 0
        # Each is one of its row times one of its column.
        assert torch.equal(scales * scales[0, 0], scales[:1] * scales[:, :1])
        most = 2.0**80 if kind == "scaled_both" else 2.0**40
        assert 1 / most <= scales.min() and scales.max() <= most
    assert 1e12 < 2.0**accuracy_inputs.LARGEST_SCALE_EXPONENT < 1.1e12


def test_terms_that_are_divided_out_are_those_of_normal_numbers():
    x, weight = list_scales("scaled_both")
    along = x[0] * weight[0]
    assert (along == along[0]).all() and spread(x[:1], 1) > 60


# The longest sums, and results of few rows: whatever the seed, they stay within fp32.
@pytest.mark.parametrize("shape", [(64, 64, 131072, 1), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("kind", SCALED)
def test_products_of_scaled_matrices_stay_within_fp32(kind, shape):
    product = draw(kind=kind, shape=shape)
    truth = accuracy_errors.compute_product_truth(product.x, product.weight)
    terms = torch.cat([m.abs().flatten() for m in product[1:]]).double()
    assert terms.min() > 2.0**-126
    # Below, engines sum up as they do elsewhere: cutlass_fused.precision.
    assert terms.max() < 2.0**115 and truth.size.max() < 2.0**102
    assert truth.y.abs().min() > 2.0**-126


# ---- errors of columns and rows ----


def test_errors_of_lines_by_hand():
    # Columns, and rows, of equal geometric means.
    truth = torch.tensor([[4.0, 1.0], [1.0, 4.0]]).double()
    error = torch.tensor([[0.0, 0.5], [0.25, 0.0]]).double()
    columns = accuracy_errors.find_worst_line(error, truth, -2)
    assert columns == pytest.approx(0.5 / math.sqrt(17))
    # Rows and columns of the truth and the error are multiplied by any numbers: no change.
    scales = torch.tensor([1e-12, 3.0])[:, None] * torch.tensor([-1e12, 7.0])
    for along, expected in ((-2, 0.5), (-1, 0.5)):
        found = accuracy_errors.find_worst_line(error * scales, truth * scales, along)
        assert found == pytest.approx(expected / math.sqrt(17))
    error[0] = 0
    assert accuracy_errors.find_worst_line(error, truth, -1) == pytest.approx(0.25 / math.sqrt(17))
    assert accuracy_errors.find_worst_line(0 * error, truth, -1) == 0
    # A batch: the worst of all matrices.
    both = torch.stack([0 * error, error]), torch.stack([truth, truth])
    assert accuracy_errors.find_worst_line(*both, -1) == pytest.approx(0.25 / math.sqrt(17))


def test_zeros_and_nan_in_lines():
    find = accuracy_errors.find_worst_line
    truth = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 0.0]]).double()
    for along in (-2, -1):
        assert find(0 * truth, truth, along) == 0
        error = torch.zeros(2, 3).double()
        error[0, 2] = 1e-30
        assert find(error, truth, along) == math.inf
        error[0, 2] = math.nan
        assert math.isnan(find(error, truth, along))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scales_of_outputs_change_no_error_of_fp32(layout):
    """Powers of two leave every rounding where it was. So must be what judges them."""
    plain, scaled = (
        find_errors(product, accuracy_variants.build_eager(product)())
        for product in (draw(layout), draw(layout, "scaled_outputs"))
    )
    assert scaled.err_column == pytest.approx(plain.err_column, rel=1e-6)
    assert scaled.err_row == pytest.approx(plain.err_row, rel=1e-6)


@pytest.mark.parametrize("precision", accuracy.PRECISIONS)
@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_layout_pass_the_form(kind, layout, precision):
    case = make_case(layout, kind, precision)
    rows = measure(["ours", "eager"], case)
    assert [row["variant"] for row in rows] == ["ours", "eager"]
    for row in rows:
        results.check_row(row)
        assert results.case_of(row) == results.case_of(case.describe("accuracy"))
        assert 0 < row["rel_err"] and all(0 < row[k] < 1e-2 for k in accuracy_errors.LINE_ERRORS)
    assert "too much" not in accuracy.format_table(rows)


# ---- planted faults ----


def lose_digits(line):
    """TF32's error, in the numbers of one line: some 3e-4."""
    line *= 1 + 2.0**-11 * torch.linspace(-1, 1, line.numel()).reshape(line.shape)


def spoil_column(y):
    lose_digits(y[..., 5])


def spoil_row(y):
    lose_digits(y[..., 5, :])


def forget_column(y):
    y[..., 5] = 0


def flush_small_outputs(y):
    """As a result would lose its small rows and columns, if one scale served all of it."""
    y[y.abs() < 1e-9 * y.abs().max()] = 0


def spoil_smallest(y):
    """One column alone, the smallest: no norm of the whole result shows it."""
    flat = y.reshape(-1, *y.shape[-2:])[0]
    lose_digits(flat[:, flat.abs().amax(0).argmin()])


FAULTS = (spoil_column, spoil_row, forget_column, spoil_smallest)


def plant(monkeypatch, name, spoil):
    def build(product):
        run = accuracy_variants.build_eager(product)

        def spoiled():
            y = run()
            spoil(y)
            return y

        return spoiled

    monkeypatch.setitem(accuracy_variants.VARIANTS, name, build)


@pytest.mark.parametrize("spoil", [*FAULTS, flush_small_outputs])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["scaled_outputs", "scaled_both"])
def test_faults_of_one_line_are_twice_cublas_and_more(kind, layout, spoil):
    product = draw(layout, kind)
    y = accuracy_variants.build_eager(product)()
    right = {"variant": "eager", **find_errors(product, y)._asdict()}
    spoil(y)
    found = {"variant": "ours", **find_errors(product, y)._asdict()}
    ratios = accuracy_errors.compare_lines([found, right])
    assert ratios.keys() == set(accuracy_errors.LINE_ERRORS)
    assert max(ratios.values()) > 10 * accuracy_errors.MOST_OF_CUBLAS
    rows = [{**row, "ms": 1.0} for row in (found, right)]
    assert accuracy_errors.list_excesses(rows) and "which is too much" in accuracy.format_table(
        rows
    )


@pytest.mark.parametrize("spoil", FAULTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_faults_of_one_line_are_never_timed(layout, spoil, monkeypatch, capsys):
    """A peer that has them is left out. Of scaled outputs the norm of the whole tells nothing."""
    plant(monkeypatch, "eager", spoil)
    case = make_case(layout, "scaled_outputs")
    assert [row["variant"] for row in measure(["ours", "eager"], case)] == ["ours"]
    assert "eager: skipped: WrongResult" in capsys.readouterr().out
    plant(monkeypatch, "ours", spoil)
    with pytest.raises(checking.WrongResult, match="ours"):
        measure(["ours", "eager"], case)


def test_only_its_columns_tell_that_a_long_sum_is_wrong(monkeypatch):
    """The bound of an output grows with K, and this error is below it everywhere."""
    case = make_case("wgrad", "scaled_outputs", shape=(131072, 24, 40, 1))
    product = accuracy_variants.draw_product(case, "cpu")
    y = accuracy_variants.build_eager(product)()
    spoil_smallest(y)
    errors = find_errors(product, y)
    assert accuracy_errors.limit_error(case, "ours") > errors.rel_err
    plant(monkeypatch, "ours", spoil_smallest)
    with pytest.raises(checking.WrongResult, match="ours: a column has a relative error"):
        measure(["ours"], case)
    of_a_row = accuracy_errors.Errors(*[1e-7] * 4, err_row=2e-4)
    with pytest.raises(checking.WrongResult, match="ours: a row has a relative error"):
        accuracy_errors.check_errors(case, "ours", of_a_row)
    accuracy_errors.check_errors(case, "ours", of_a_row._replace(err_row=1e-4))


def test_ratios_to_cublas_and_what_is_too_much():
    row = dict.fromkeys(accuracy_errors.LINE_ERRORS, 1e-6)
    ours, eager = row | {"variant": "ours"}, row | {"variant": "eager"}
    compare = accuracy_errors.compare_lines
    assert compare([ours, eager]) == {"err_column": 1, "err_row": 1}
    assert compare([ours | {"err_row": 3e-6}, eager])["err_row"] == pytest.approx(3)
    assert compare([ours, eager | {"err_row": 0.0}])["err_row"] == math.inf
    assert compare([ours | {"err_row": 0.0}, eager | {"err_row": 0.0}])["err_row"] == 1
    # Twice as much and a unit in the last place are allowed.
    for factor, unit, expected in ((2, 0.9, []), (2, 1.1, ["err_row"]), (0, 0.9, [])):
        worse = ours | {"err_row": factor * 1e-6 + unit * 2.0**-23}
        assert list(accuracy_errors.list_excesses([worse, eager])) == expected
    # Rows of before there were such errors, and cases without cuBLAS.
    assert compare([{"variant": "ours"}, eager]) == compare([ours]) == compare([eager]) == {}
    assert accuracy_errors.list_excesses([{"variant": "ours"}, eager]) == {}
