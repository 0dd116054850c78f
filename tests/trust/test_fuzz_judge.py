"""What random calls on a GPU have found of their own judge, each as a test without a GPU."""

import random

import fuzz_around
import fuzz_calls
import fuzz_case
import fuzz_gradients
import fuzz_programs
import fuzz_sums
import pytest
import torch
from accuracy import Rejected
from accuracy_statistics import StatisticsJudge
from calls import SCALE_NORM_TRAIN
from cases import NUMERICS, Shape, make_call
from cases_statistics import make_statistics_call
from fuzz_grammar import Written
from fuzz_inputs import SMALL


def make_training_call(m=40, n=6, k=700):
    numerics = next(each for each in NUMERICS if each.name == "bf16_fp32")
    return make_statistics_call(SCALE_NORM_TRAIN, Shape(m, n, k, "made"), numerics, "cpu")


def test_bytes_of_a_column_of_one_number():
    column = torch.ones(12, dtype=torch.bfloat16)[::3][:1]
    assert column.stride() == (3,) and column.is_contiguous()
    assert fuzz_around._as_bytes(column).numel() == 2


def test_no_product_is_forced_where_there_is_none(monkeypatch):
    one = fuzz_sums.Sum(random.Random(0), "cpu", SMALL, 1)
    one.dtype = torch.float32
    monkeypatch.setattr(fuzz_sums, "list_tf32x3", lambda x, weight: [])

    class OnGpu:
        device = torch.device("cuda")

    one.x = OnGpu()
    one.alpha = 1.0
    assert "cublas" in one.list_forcible()
    for one.alpha in (0.0, -0.0):
        assert "cublas" not in one.list_forcible()


@pytest.mark.parametrize("name", ["y", "mean", "rstd", "running_mean", "running_var"])
def test_long_sums_are_within_bounds(name):
    """Of tensor cores that add up one by one; not what is a hundred times as far off."""
    call = make_training_call()
    judge = StatisticsJudge(call)
    bound = (judge.moment_bounds | judge.bounds)[name]
    for factor, is_within in ((0.9, True), (100.0, False)):
        results = call.run_all()
        results[name] = (judge.truth[name] + factor * bound).to(results[name].dtype)
        assert fuzz_calls.is_within_bounds(call, judge, results) == is_within


def test_the_mean_of_infinite_numbers():
    """Is infinite or NaN; a finite column's is neither."""
    call = make_training_call()
    bias = torch.zeros(call.n)
    bias[2] = torch.inf
    case_judge = fuzz_calls.CallJudge(call.change(bias=bias))
    results = case_judge.call.run_all()
    results["mean"] = torch.where(results["mean"].isfinite(), results["mean"], torch.nan)
    error = Rejected("op: mean: NaN is not where eager has it")
    assert fuzz_calls.explain(case_judge, results, error) == "the mean of infinite numbers"
    results["mean"][0] = torch.nan
    assert fuzz_calls.explain(case_judge, results, error) is None


def test_an_infinity_that_the_truth_has():
    """An infinite gamma times a distance from the mean that eager rounds to 0 is NaN there."""
    call = make_training_call()
    gamma = call.gamma.clone()
    gamma[3] = torch.inf
    case_judge = fuzz_calls.CallJudge(call.change(gamma=gamma))
    judge, results = case_judge.judge, case_judge.call.run_all()
    assert judge.truth["y"][:, 3].isinf().all()
    judge.eager["y"][5, 3] = torch.nan
    results["y"] = judge.truth["y"].to(results["y"].dtype)
    error = Rejected("op: y: NaN is not where eager has it")
    expected = "eager's side of the mean, times infinity"
    assert fuzz_calls.explain(case_judge, results, error) == expected
    for wrong in (-results["y"][5, 3], 0.0):
        results["y"][5, 3] = wrong
        assert fuzz_calls.explain(case_judge, results, error) is None


def test_a_beta_of_minus_zero(monkeypatch):
    """Counts as 0: PyTorch's sum of batches would multiply memory that it has not written."""
    one = fuzz_sums.Sum(random.Random(0), "cpu", SMALL, 1)
    one.op, one.batch, one.alpha, one.beta = "baddbmm", 2, 1.0, -0.0
    asked = []
    monkeypatch.setattr(torch, "baddbmm", lambda *tensors, beta, alpha: asked.append(beta))
    one.compute(torch.ones(2, 3, 4), torch.ones(2, 5, 4), torch.ones(()))
    assert str(asked) == "[0.0]"


def test_an_infinite_gamma_in_eval():
    numerics = next(each for each in NUMERICS if each.name == "bf16")
    call = make_call("linear_scale_batch_norm_inference", Shape(5, 6, 8, "made"), numerics, "cpu")
    gamma = call.gamma.clone()
    gamma[3] = torch.inf
    case_judge = fuzz_calls.CallJudge(call.change(gamma=gamma))
    judge, results = case_judge.judge, case_judge.call.run_all()
    judge.eager[2, 3] = -judge.truth[2, 3]
    error = Rejected("op: y: +infinity is not where eager has it")
    expected = "eager's side of the mean, times infinity"
    assert fuzz_calls.explain(case_judge, results, error) == expected
    results["y"][2, 3] = 1.0
    assert fuzz_calls.explain(case_judge, results, error) is None


def test_errors_where_no_limit_is_finite(monkeypatch):
    call = make_training_call()
    case_judge = fuzz_calls.CallJudge(call)
    monkeypatch.setattr(case_judge.judge, "limit", lambda name: torch.full((call.n,), torch.nan))
    errors = case_judge.find_errors(call.run_all())
    assert errors["mean"].ours > 0.0 and errors["mean"].limit == 0.0


def cosine(acc, p0):
    return torch.cos(acc) + p0


def test_gradients_of_a_program_are_sums():
    """Where eager's are as good as exact, what tensor cores lose is told by its name, and more than
    that is none of theirs."""
    torch.manual_seed(0)
    tensors = {"x": torch.randn(15, 1), "weight": torch.randn(2620, 1)}
    tensors["p0"] = torch.randn(2620)
    behind = fuzz_programs.Behind(
        Written("", {"p0": "row"}, False, cosine), None, tensors, "ieee", True
    )
    judge, results = behind.make_judge(), behind.run_eager(list(tensors.values()))
    judge.eager = [{name: each.float() for name, each in judge.truth.items()}]
    error = Rejected("epilogue: grad_x: error above the limit in element 8")
    expected = "digits of a product, or the order of a sum"
    for name, off in (("grad_x", 3e-5), ("grad_weight", 8e-6)):
        results = {key: each.float() for key, each in judge.truth.items()}
        results[name][3] += off
        with pytest.raises(Rejected, match="error above"):
            judge.check(results)
        assert behind.explain(judge, results, error) == expected
        results[name][3] += 100_000 * off
        assert behind.explain(judge, results, error) is None
    results = {key: each.float() for key, each in judge.truth.items()}
    results["grad_p0"] += 1.0
    assert behind.explain(judge, results, error) is None


def test_an_overflow_of_16_bits_times_zero():
    numerics = next(each for each in NUMERICS if each.name == "fp16")
    call = make_call("linear_scale_leaky_relu", Shape(4, 6, 8, "made"), numerics, "cpu")
    x, scale = call.x.clone(), torch.zeros_like(call.x[0, :1]).float()
    weight = call.weight.clone()
    x[2], weight[0] = 6e4, 2.0
    case_judge = fuzz_calls.CallJudge(call.change(x=x, weight=weight, scale=scale, bias=None))
    judge, results = case_judge.judge, case_judge.call.run_all()
    assert judge.eager[2, 0].isnan() and judge.truth[2, 0] == 0
    results["y"] = judge.truth.to(torch.float16)
    with pytest.raises(Rejected, match="NaN is not where eager has it") as found:
        case_judge.check(results)
    assert fuzz_calls.explain(case_judge, results, found.value) == "eager's overflow of 16 bits"
    results["y"][1, 1] = torch.nan
    assert fuzz_calls.explain(case_judge, results, found.value) is None


def test_numbers_in_place_of_infinity_are_those_of_a_dtype(monkeypatch):
    """Eager's of 16 bits is not that of fp32, in which an epilogue is computed."""
    written = Written("torch.nan_to_num(acc)", {}, False, torch.nan_to_num)
    monkeypatch.setattr(fuzz_programs, "make_program", lambda *arguments: (written, None))
    words = [fuzz_programs.draw_case(0, i, "cpu", SMALL).words for i in range(300)]
    special = [each.split()[1].strip(",") for each in words if "non-finite" in each]
    assert special and set(special) <= {"ieee", "tf32"}


def draw_norm(name, is_training, scale="0-dim"):
    """A drawn call of a batch norm behind an fp32 product, on few rows."""
    for index in range(10_000):
        rng = random.Random(index)
        one = fuzz_gradients.Differentiated(rng, "cpu", SMALL, index)
        is_fp32 = one.numerics is fuzz_gradients.IEEE and f"scale {scale}" in one.words
        if one.name == name and is_fp32 and one.training == is_training and len(one.grad_y) < 9:
            return one
    raise AssertionError(f"nothing like {name} was drawn")


@pytest.mark.parametrize("name", ["grad_x", "grad_weight"])
@pytest.mark.parametrize("is_training", [False, True])
def test_gradients_behind_a_batch_norm_are_sums(is_training, name):
    """Held to twice eager's error they were, where that of a linear layer may also be what a split
    product and its sum lose."""
    one = draw_norm("linear_scale_batch_norm", is_training)
    judge = one.make_judge()
    judge.eager = [{key: each.float() for key, each in judge.truth.items()}]
    size, count = one._find_sizes(judge.truth)[name]
    assert (size >= judge.truth[name].abs() * (1 - 1e-9)).all()
    bound = fuzz_case.bound_sums(size, count, 2.0**-21)
    error = Rejected(f"f: {name}: error above the limit in element 0")
    for times, expected in ((0.9, "digits of a product, or the order of a sum"), (100, None)):
        results = {key: each.float() for key, each in judge.truth.items()}
        results[name] = (judge.truth[name] + times * bound).float()
        with pytest.raises(Rejected, match="error above"):
            judge.check(results)
        assert one.explain(judge, results, error) == expected


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("name", ["linear_scale_batch_norm", "linear_batch_norm_scale_softmax"])
def test_y_of_a_batch_norm_has_the_digits_of_its_product(name, is_training):
    """Few rows deviate little, and what a product loses is divided by that."""
    one = draw_norm(name, is_training)
    judge = one.make_judge()
    judge.eager = [{key: each.float() for key, each in judge.truth.items()}]
    bound = one._bound_forward(2.0**-21)["y"]
    error = Rejected("f: y: error above the limit in element 0")
    for times, expected in ((0.9, "digits of a product, or the order of a sum"), (100, None)):
        results = {key: each.float() for key, each in judge.truth.items()}
        results["y"] = (judge.truth["y"] + times * bound).float()
        with pytest.raises(Rejected, match="error above"):
            judge.check(results)
        assert one.explain(judge, results, error) == expected


@pytest.mark.parametrize("name", ["y", "mean", "rstd"])
def test_digits_of_a_split_product_in_front_of_a_batch_norm(name):
    numerics = next(each for each in NUMERICS if each.name == "ieee")
    call = make_statistics_call(SCALE_NORM_TRAIN, Shape(3, 6, 40, "made"), numerics, "cpu")
    case_judge = fuzz_calls.CallJudge(call)
    judge, error = case_judge.judge, Rejected("op: y: error above the limit")
    judge.yardsticks = [{key: each.float() for key, each in judge.truth.items()}]
    bound = (judge.moment_bounds | judge.bounds)[name]
    for times, expected in ((0.9, "digits of a split product"), (100.0, None)):
        results = call.run_all()
        results[name] = (judge.truth[name] + times * bound).float()
        assert fuzz_calls.explain(case_judge, results, error) == expected
