"""bench.accuracy without a GPU: what its matrices hold, its errors, its rows. What it has beside
forward products, and the errors of columns and rows: test_accuracy_layouts.py."""

import functools
import json
import math

import pytest
import torch

from bench import accuracy
from bench.cases import accuracy_inputs, accuracy_variants
from bench.cases.accuracy_cases import LAYOUTS, AccuracyCase
from bench.measure import accuracy_errors, checking, machine, results, timing
from cutlass_fused.timing import Timing

M, N, K = 24, 40, 256
KINDS = list(accuracy_inputs.INPUTS)


def draw(kind, m=M, n=N, k=K):
    generator = torch.Generator().manual_seed(0)
    return accuracy_inputs.INPUTS[kind](m, n, k, generator, "cpu")


def make_case(kind="randn", precision="ieee", k=K):
    return AccuracyCase(kind, precision, M, N, k)


# ---- what the matrices hold ----


def test_the_form_knows_every_kind():
    assert tuple(KINDS) == results.EXTRA_MODELS["accuracy"]


# One column, an odd number of them, and more than one row of either matrix.
@pytest.mark.parametrize("k", [1, 2, 7, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_matrices_are_finite_fp32_and_the_same_again(kind, k):
    x, weight = draw(kind, k=k)
    assert x.shape == (M, k) and weight.shape == (N, k)
    for matrix, again in zip((x, weight), draw(kind, k=k), strict=True):
        assert matrix.dtype == torch.float32 and matrix.is_contiguous()
        assert matrix.isfinite().all() and matrix.count_nonzero() > 0
        assert torch.equal(matrix, again)
    # Neither is drawn from the other's numbers.
    assert not torch.equal(x[0].abs(), weight[0].abs()) or kind == "rand"


def test_rand_is_that_of_the_models():
    x, weight = draw("rand", k=10000)
    assert 0 <= x.min() < 0.01 and 0.99 < x.max() < 1
    assert -0.01 <= weight.min() < -0.0099 and 0.0099 < weight.max() <= 0.01
    assert weight.mean().abs() < 1e-4


def test_randn_is_normal():
    for matrix in draw("randn", k=10000):
        assert matrix.mean().abs() < 0.01 and (matrix.std() - 1).abs() < 0.01


@pytest.mark.parametrize("sigma", [0.5, 1, 3])
def test_logarithms_are_normal_and_signs_random(sigma):
    for matrix in draw(f"lognormal_{sigma}", k=10000):
        logarithms = matrix.abs().log()
        assert logarithms.mean().abs() < 0.02 * sigma
        assert (logarithms.std() / sigma - 1).abs() < 0.02
        assert matrix.sign().mean().abs() < 0.02
    widest = (matrix.abs().amax(1) / matrix.abs().amin(1)).log2().max()
    assert (widest > 30) == (sigma == 3)


def test_ill_conditioned_terms_are_those_of_randn_in_rows_of_40_binades():
    x, weight = draw("ill_conditioned")
    plain_x, plain_weight = draw("randn")
    scale = x / plain_x
    # Powers of two, the same for a whole column, and undone by the weight.
    assert (scale.frexp().mantissa == 0.5).all() and (scale == scale[0]).all()
    assert (scale[0, 0], scale[0, -1]) == (2.0**-20, 2.0**20)
    assert torch.equal(weight * scale[:1], plain_weight)
    terms, plain_terms = x[0].double() * weight[0], plain_x[0].double() * plain_weight[0]
    assert torch.equal(terms, plain_terms)
    for matrix in (x, weight):
        assert (matrix.abs().amax(1) / matrix.abs().amin(1)).min() > 2.0**36


@pytest.mark.parametrize("k", [2, 256, 257])
def test_cancelling_sums_are_a_thousandth_of_their_terms(k):
    x, weight = draw("cancelling", k=k)
    half = k // 2
    assert torch.equal(weight[:, :half], weight[:, half : 2 * half])
    rest = x[:, :half].double() + x[:, half : 2 * half]
    assert rest.abs().max() < 6 * 2.0**-10 and rest.std() > 0.5 * 2.0**-10
    assert x[:, 2 * half :].abs().sum() < 6 * 2.0**-10 * M
    truth = accuracy_errors.compute_product_truth(x, weight)
    terms = (x.double().square() @ weight.double().square().T).sqrt()
    assert truth.y.norm() < terms.norm() / 1000
    # A sum that does not cancel is as large as the root of its squared terms.
    other = accuracy_errors.compute_product_truth(*draw("randn", k=k)).y.norm()
    assert 0.3 < other / terms.norm() < 3


# ---- the errors ----

# Truth and sizes by hand: x = [[1, 2], [3, -1], [0, 0]], weight = [[1, 1], [2, -1]].
X = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 0.0]])
WEIGHT = torch.tensor([[1.0, 1.0], [2.0, -1.0]])
TRUTH = [[3.0, 0.0], [2.0, 7.0], [0.0, 0.0]]
SIZE = [[3.0, 4.0], [4.0, 7.0], [0.0, 0.0]]


def compute_by_hand(y):
    return accuracy_errors.compute_errors(y, accuracy_errors.compute_product_truth(X, WEIGHT))


def test_truth_is_the_product_and_the_product_of_the_magnitudes():
    truth = accuracy_errors.compute_product_truth(X, WEIGHT)
    assert truth.y.tolist() == TRUTH and truth.size.tolist() == SIZE
    assert truth.y.dtype == torch.float64


def test_errors_of_a_case_by_hand():
    y = torch.tensor(TRUTH)
    assert compute_by_hand(y) == (0, 0, 0, 0, 0)
    y += torch.tensor([[0.75, -0.5], [0.25, 0.0], [0.0, 0.0]])
    # Parts of 1/4, 1/8, 1/16 and three times 0.
    assert compute_by_hand(y)[:3] == (pytest.approx(math.sqrt(0.875 / 62)), 0, 0.25)
    y[1, 1] += 7 / 32
    relative, median, largest, *_ = compute_by_hand(y)
    assert (median, largest) == (1 / 32, 0.25)
    assert relative == pytest.approx(math.sqrt((0.875 + (7 / 32) ** 2) / 62))


def test_output_without_terms_must_be_zero():
    y = torch.tensor(TRUTH)
    y[2, 1] = 1e-30
    assert compute_by_hand(y).err_componentwise == math.inf


def test_nan_is_an_error():
    y = torch.tensor(TRUTH)
    y[0, 0] = math.nan
    assert all(map(math.isnan, compute_by_hand(y)))


# ---- the variants ----


@pytest.mark.parametrize("kind", KINDS)
def test_three_bf16_products_hold_16_bits(kind):
    product = accuracy_variants.draw_product(make_case(kind, k=64), "cpu")
    truth = accuracy_errors.compute_product_truth(product.x, product.weight)
    found = accuracy_errors.compute_errors(accuracy_variants.build_bf16x3(product)(), truth)
    eager = accuracy_errors.compute_errors(accuracy_variants.build_eager(product)(), truth)
    # Elements of x and of weight are off by 2^-17 at most, and lo @ lo, up to 2^-16, is missing.
    assert 2 * eager.err_componentwise < found.err_componentwise < 2.0**-15 + 2.0**-20
    # One bf16 product is far worse.
    high = product.x.bfloat16().float() @ product.weight.bfloat16().float().T
    assert accuracy_errors.compute_errors(high, truth).err_median > 30 * found.err_median


def test_split_is_of_the_same_number():
    values = torch.randn(1000)
    high, low = accuracy_variants.split_bf16(values)
    assert high.dtype == low.dtype == torch.bfloat16
    assert torch.equal(high, values.bfloat16())
    rest = (high.double() + low.double() - values).abs() / values.abs()
    assert 0 < rest.max() <= 2.0**-17


def test_three_bf16_products_are_compared_with_fp32_only():
    names = list(accuracy_variants.VARIANTS)
    assert names == ["ours", "eager", "bf16x3"]
    choose = accuracy_variants.list_accuracy_variants
    assert choose(names, make_case()) == names
    assert choose(names, make_case(precision="tf32")) == ["ours", "eager"]


def list_all(layouts=LAYOUTS):
    return accuracy.list_accuracy_cases(KINDS, accuracy.PRECISIONS, layouts)


# ---- a case is measured ----

measure = functools.partial(accuracy.measure_product, "cpu", 2)


@pytest.mark.parametrize("precision", accuracy.PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_case_pass_the_form(kind, precision):
    case = make_case(kind, precision)
    names = accuracy_variants.list_accuracy_variants(list(accuracy_variants.VARIANTS), case)
    rows = measure(names, case)
    assert [row["variant"] for row in rows] == names
    for row in rows:
        results.check_row(row)
        assert (row["suite"], row["model"], row["precision"]) == ("accuracy", kind, precision)
        assert (row["M"], row["N"], row["K"]) == (M, N, K)
        assert 0 < row["err_median"] < row["err_componentwise"] < 1e-4
        assert row["err_median"] < row["rel_err"]
        assert results.case_of(row) == results.case_of(case.describe("accuracy"))
    table = accuracy.format_table(rows).splitlines()
    assert len(table) == 1 + len(rows) and table[1].split()[0] == "ours"
    assert accuracy.format_table(rows[1:]).count("\n") == len(rows) - 1


def spoil_variant(monkeypatch, name, spoil):
    build = accuracy_variants.VARIANTS[name]
    spoiled = functools.partial(build_spoiled, build, spoil)
    monkeypatch.setitem(accuracy_variants.VARIANTS, name, spoiled)


def build_spoiled(build, spoil, product):
    run = build(product)
    return lambda: spoil(product, run())


def forget_row(product, y):
    y[-1] = 0
    return y


def leave_nan(product, y):
    y[0, 0] = math.nan
    return y


def forget_term(product, y):
    return y - product.x[:, -1:] * product.weight[:, -1]


def multiply_halves(product, y):
    return (product.x.half() @ product.weight.half().T).float()


def multiply_bf16(product, y):
    return (product.x.bfloat16() @ product.weight.bfloat16().T).float()


@pytest.mark.parametrize("kind", ["rand", "randn", "lognormal_1"])
@pytest.mark.parametrize(
    "precision, spoil",
    [
        *(("ieee", spoil) for spoil in (forget_row, leave_nan, forget_term)),
        # Under "ieee" a result that is as good as TF32 is wrong, under "tf32" one as bad as bf16.
        ("ieee", multiply_halves),
        *(("tf32", spoil) for spoil in (forget_row, leave_nan, forget_term, multiply_bf16)),
    ],
)
def test_planted_wrong_result_is_seen(precision, spoil, kind, monkeypatch, capsys):
    case = make_case(kind, precision)
    spoil_variant(monkeypatch, "eager", spoil)
    # A wrong peer is left out.
    assert [row["variant"] for row in measure(["ours", "eager"], case)] == ["ours"]
    assert "eager: skipped: WrongResult" in capsys.readouterr().out
    # Ours is never timed.
    spoil_variant(monkeypatch, "ours", spoil)
    with pytest.raises(checking.WrongResult, match="ours has a relative error"):
        measure(["ours", "eager"], case)


def test_one_wrong_output_among_large_ones_is_seen(monkeypatch):
    """It does not move the relative error, in which the largest outputs count."""

    def spoil(product, y):
        y[y.abs() == y.abs().min()] *= 1.1
        return y

    spoil_variant(monkeypatch, "ours", spoil)
    with pytest.raises(checking.WrongResult, match="ours: an output has a relative error"):
        measure(["ours"], make_case("lognormal_3", k=2))


@pytest.mark.parametrize("kind", KINDS)
def test_limits_grow_where_errors_do(kind):
    def limit(k, variant="ours", precision="ieee"):
        return accuracy_errors.limit_error(make_case(kind, precision, k), variant)

    assert limit(1) == limit(8192) == 1e-5
    assert limit(131072) == 4e-5 < limit(1, precision="tf32") == limit(1, "bf16x3") == 1e-3


def test_precision_is_set_for_a_case_and_then_put_back(monkeypatch):
    seen = []

    def record(product, y):
        seen.append((torch.get_float32_matmul_precision(), torch.is_grad_enabled()))
        return y

    spoil_variant(monkeypatch, "eager", record)
    for precision, setting, other in (("ieee", "highest", "high"), ("tf32", "high", "highest")):
        seen.clear()
        torch.set_float32_matmul_precision(other)
        measure(["ours", "eager"], make_case(precision=precision))
        # Once checked, then timed.
        assert len(seen) > 2 and set(seen) == {(setting, False)}
        assert torch.get_float32_matmul_precision() == other


def test_ours_is_told_the_precision():
    for precision in accuracy.PRECISIONS:
        product = accuracy_variants.draw_product(make_case(precision=precision), "cpu")
        run = accuracy_variants.build_ours(product)
        assert run.keywords == {"precision": precision}


# ---- the command ----


@pytest.fixture
def run_accuracy(tmp_path, monkeypatch):
    """run(*arguments) -> the cases measured, each in 10 s; a run ends at `run.crash_at` cases."""
    seconds, measured = [0.0], []

    def measure(device, rounds, variants, case):
        if len(measured) == run.crash_at:
            raise KeyboardInterrupt
        seconds[0] += 10
        measured.append(case)
        names = accuracy_variants.list_accuracy_variants(variants, case)
        errors, part = (
            dict.fromkeys(accuracy_errors.Errors._fields, 1e-6),
            case.describe("accuracy"),
        )
        return [timing.make_row(part, name, Timing(3, 2.5, 4), **errors) for name in names]

    def run(*arguments):
        measured.clear()
        accuracy.main(["--out", str(tmp_path), "--commit", "abc", *arguments])
        return list(measured)

    run.crash_at = None
    meta = dict.fromkeys(results.META, "any")
    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    monkeypatch.setattr(machine, "describe_machine", lambda commit: meta)
    monkeypatch.setattr("bench.measure.run_cases.time.perf_counter", lambda: seconds[0])
    monkeypatch.setattr(accuracy, "measure_product", measure)
    return run


def test_everything_is_measured_by_one_command(run_accuracy, tmp_path):
    assert run_accuracy() == list_all()
    assert run_accuracy() == []
    rows = json.loads((tmp_path / "accuracy.json").read_text())["rows"]
    # Two kinds of precision; three products of bf16 numbers beside the forward ones in one of them.
    assert len(rows) == 2 * 2 * len(list_all()) // 2 + len(list_all(["fwd"])) // 2


def test_a_run_goes_on_where_it_stopped(run_accuracy):
    run_accuracy.crash_at = 5
    with pytest.raises(KeyboardInterrupt):
        run_accuracy()
    run_accuracy.crash_at = None
    pieces = [run_accuracy("--budget", "500") for _ in range(3)]
    assert [len(piece) for piece in pieces] == [50, 50, 50]
    assert len(run_accuracy()) == len(list_all()) - 5 - 150
    assert run_accuracy() == []


def test_options_choose(run_accuracy, tmp_path, capsys):
    arguments = ("--models", "randn", "--precisions", "tf32", "--variants", "ours,bf16x3")
    arguments += ("--layouts", "fwd,bmm")
    assert len(run_accuracy(*arguments)) == 10 + 2
    rows = json.loads((tmp_path / "accuracy.json").read_text())["rows"]
    assert {row["variant"] for row in rows} == {"ours"}
    for option in ("--again", "--unsteady"):
        with pytest.raises(SystemExit):
            run_accuracy("--budget", "500", option)
        assert "not allowed with argument --budget" in capsys.readouterr().err


def test_without_gpu_the_reason_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="need a CUDA GPU"):
        accuracy.main(["--out", str(tmp_path)])
