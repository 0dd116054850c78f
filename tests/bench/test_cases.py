"""The cases of the benches: their problems, their variants, and the check before the timing."""

import functools
import sys

import pytest
import torch
from torch.nn.functional import batch_norm, leaky_relu

from bench import models
from bench.cases import cases, cudnn_graph, peers
from bench.measure import checking, results, timing
from cutlass_fused import comparison, nn

SMALL = {"m": 16, "n": 48, "k": 64}
BATCH_NORM_MODELS = ("33", "39", "84")


def make_problem(precision, model="12", mode="eval", **size):
    (case,) = cases.list_cases([model], [precision], [mode])
    return cases.build_problem(case._replace(**{**SMALL, **size}), "cpu")


def test_table_of_cases():
    assert cases.list_cases(["12", "39"], ["ieee", "fp16"], ["eval"]) == [
        ("12", "eval", "ieee", 1024, 8192, 8192),
        ("12", "eval", "fp16", 1024, 8192, 8192),
        ("39", "eval", "ieee", 16384, 4096, 4096),
        ("39", "eval", "fp16", 16384, 4096, 4096),
    ]
    # Four models, two modes, four precisions.
    assert len(set(cases.list_cases(cases.MODELS, comparison.PRECISIONS))) == 4 * 2 * 4


# The problems


@pytest.mark.parametrize("precision", comparison.PRECISIONS)
def test_problems_are_those_of_the_model(precision):
    """Every precision has these numbers: torch.rand inputs, parameters as torch.nn draws them."""
    dtype = comparison.PRECISIONS[precision].dtype
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48)
    scale = torch.randn(48)
    x = torch.rand(16, 64)
    problem = make_problem(precision, "33")
    assert torch.equal(problem.plain.gemm.weight, linear.weight.to(dtype))
    assert torch.equal(problem.plain.gemm.bias, linear.bias.to(dtype))
    assert torch.equal(problem.plain.scale, scale.to(dtype))
    assert torch.equal(problem.x, x.to(dtype))
    assert torch.equal(make_problem(precision, "84").plain.scale, torch.ones(1, dtype=dtype))


@pytest.mark.parametrize("model", BATCH_NORM_MODELS)
def test_running_statistics_are_new_in_training_and_of_the_batch_in_eval(model):
    problem = make_problem("ieee", model, "train")
    assert problem.plain.training
    assert problem.plain.bn.num_batches_tracked == 0 and not problem.plain.bn.running_mean.any()
    problem = make_problem("ieee", model, "eval")
    assert not problem.plain.training and problem.plain.bn.momentum == 0.1
    with torch.no_grad():
        z = problem.plain.gemm(problem.x) * (1 if model == "84" else problem.plain.scale)
    torch.testing.assert_close(problem.plain.bn.running_mean, z.mean(0))
    torch.testing.assert_close(problem.plain.bn.running_var, z.var(0))


def test_building_a_problem_keeps_the_seed():
    state = torch.get_rng_state()
    make_problem("bf16")
    assert torch.equal(torch.get_rng_state(), state)


def test_fork_shares_the_product_and_has_statistics_of_its_own():
    problem = make_problem("ieee", "33", "train")
    fork = problem.fork()
    with torch.no_grad():
        fork.plain(problem.x)
    assert fork.plain.gemm is problem.plain.gemm
    assert fork.plain.bn.num_batches_tracked == 1 and problem.plain.bn.num_batches_tracked == 0
    assert not torch.equal(fork.plain.bn.running_mean, problem.plain.bn.running_mean)


# The variants


@pytest.mark.parametrize("precision", comparison.PRECISIONS)
@pytest.mark.parametrize("mode", results.MODES)
@pytest.mark.parametrize("model", cases.MODELS)
def test_rows_of_a_case_pass_the_form(model, mode, precision):
    (case,) = cases.list_cases([model], [precision], [mode])
    case = case._replace(**SMALL)
    wanted = ["ours", "eager", "folded", "bare_product"]
    variants = models.list_possible(wanted, case)
    folds = model in BATCH_NORM_MODELS and mode == "eval"
    assert variants == [name for name in wanted if name != "folded" or folds]
    rows = timing.measure_case("models", case, variants, "cpu", rounds=2)
    assert [row["variant"] for row in rows] == variants
    for row in rows:
        results.check_row(row)
        assert (row["M"], row["N"], row["K"]) == (16, 48, 64)
    assert models.format_table(rows).count("\n") == len(rows)


@pytest.mark.parametrize("model", BATCH_NORM_MODELS)
def test_folded_is_one_linear_that_keeps_the_model_as_it_is(model):
    problem = make_problem("ieee", model)
    before = {name: value.clone() for name, value in problem.plain.state_dict().items()}
    with torch.no_grad():
        folded = problem.model.fold(problem.plain)
        torch.testing.assert_close(folded(problem.x), problem.plain(problem.x))
    linears = [part for part in folded.modules() if isinstance(part, torch.nn.Linear)]
    assert len(linears) == 1 and not any(
        isinstance(part, torch.nn.BatchNorm1d) for part in folded.modules()
    )
    for name, value in problem.plain.state_dict().items():
        assert torch.equal(value, before[name])


def test_cudnn_gets_the_affine_map_of_batch_norm(monkeypatch):
    def run(define, x, weight, others):
        assert define is cudnn_graph.define_affine
        factor, shift = others
        assert factor.dtype == shift.dtype == torch.float32
        return lambda: x @ weight.T * factor + shift

    monkeypatch.setattr(cudnn_graph, "build_run", run)
    problem = make_problem("ieee", "33")
    with torch.no_grad():
        y = peers.build_cudnn(problem)()
        torch.testing.assert_close(y, problem.plain(problem.x))


def test_cudnn_and_folded_are_skipped_with_the_reason(monkeypatch):
    ieee, bf16 = cases.list_cases(["12"], ["ieee", "bf16"], ["train"])
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert "nvidia-cudnn-frontend" in cudnn_graph.find_obstacle()
    assert "nvidia-cudnn-frontend" in peers.find_obstacle("cudnn", bf16)
    monkeypatch.setattr(cudnn_graph, "find_obstacle", lambda: None)
    assert peers.find_obstacle("cudnn", bf16) is None
    assert "TF32" in peers.find_obstacle("cudnn", ieee)
    assert "no batch norm" in peers.find_obstacle("folded", bf16)
    assert "no graph of model 84" in peers.find_obstacle("cudnn", bf16._replace(model="84"))
    in_training = bf16._replace(model="33")
    in_eval = in_training._replace(mode="eval")
    for variant in ("cudnn", "folded"):
        assert "batch" in peers.find_obstacle(variant, in_training)
        assert peers.find_obstacle(variant, in_eval) is None


# The check

WRONG = {
    "slope": lambda plain: nn.LinearScaleLeakyReLU.from_eager(plain.gemm, 2.0, 0.0),
    "multiplier": lambda plain: nn.LinearScaleLeakyReLU.from_eager(plain.gemm, 2.1, 0.1),
    "bias": lambda plain: lambda x: leaky_relu(x @ plain.gemm.weight.T * 2.0, 0.1),
    "nan": lambda plain: lambda x: plain(x) * float("nan"),
}


def check_wrong(problem, build_wrong, match, monkeypatch, capsys):
    """Ours raises, a peer is told and left out."""

    def build(own):
        return functools.partial(build_wrong(own.plain), own.x)

    monkeypatch.setitem(peers.VARIANTS, "ours", build)
    monkeypatch.setitem(peers.VARIANTS, "compile", build)
    with torch.no_grad():
        with pytest.raises(checking.WrongResult, match=match):
            peers.prepare_variants(problem, ["ours"])
        runs, errors = peers.prepare_variants(problem, ["compile", "eager"])
    assert list(runs) == list(errors) == ["eager"]
    assert "compile: skipped: WrongResult" in capsys.readouterr().out


@pytest.mark.parametrize("precision", comparison.PRECISIONS)
@pytest.mark.parametrize("fault", WRONG)
def test_wrong_result_is_never_timed(fault, precision, monkeypatch, capsys):
    problem = make_problem(precision)
    check_wrong(
        problem, WRONG[fault], "ours (has a relative error|leaves NaN)", monkeypatch, capsys
    )


def run_with_running_statistics(plain):
    """What it gives in training is that of eval."""

    def run(x):
        v = plain.gemm(x) * plain.scale
        plain.bn(v)
        bn = plain.bn
        return batch_norm(v, bn.running_mean, bn.running_var, bn.weight, bn.bias)

    return run


def run_without(parts):
    """The right y, with something else left in the statistics."""

    def build(plain):
        def run(x):
            y = plain(x)
            for name, value in parts.items():
                getattr(plain.bn, name).copy_(value(getattr(plain.bn, name)))
            return y

        return run

    return build


WRONG_STATISTICS = {
    "running statistics are used": (run_with_running_statistics, "ours has a relative error"),
    "mean is not updated": (run_without({"running_mean": torch.zeros_like}), "running_mean"),
    "variance is not updated": (run_without({"running_var": torch.ones_like}), "running_var"),
    "batch is not counted": (run_without({"num_batches_tracked": torch.zeros_like}), "tracked"),
    "batch is counted twice": (run_without({"num_batches_tracked": lambda n: n + 1}), "tracked"),
    "bias is missing in the mean": (
        lambda plain: run_without({"running_mean": lambda mean: mean - 0.1 * plain.gemm.bias})(
            plain
        ),
        "running_mean",
    ),
}


@pytest.mark.parametrize("precision", comparison.PRECISIONS)
@pytest.mark.parametrize("fault", WRONG_STATISTICS)
def test_wrong_running_statistics_are_never_timed(fault, precision, monkeypatch, capsys):
    problem = make_problem(precision, "33", "train")
    check_wrong(problem, *WRONG_STATISTICS[fault], monkeypatch, capsys)


def test_call_that_trains_in_eval_is_never_timed(monkeypatch, capsys):
    def run_in_training(plain):
        def run(x):
            y = plain(x)
            plain.train()(x)
            plain.eval()
            return y

        return run

    problem = make_problem("ieee", "84")
    check_wrong(problem, run_in_training, "num_batches_tracked|running", monkeypatch, capsys)


def test_no_precision_passes_as_a_better_one():
    """Limits, with batch norm and without, against what one rounding of the inputs does."""
    limits = checking.LARGEST_ERRORS
    factor = checking.BATCH_NORM_FACTOR
    assert factor * limits["ieee"] < 1e-4 < limits["tf32"]
    # bf16 inputs lead to 1.7e-3, twice that behind a batch norm.
    assert limits["tf32"] < 1.6e-3
    plain = make_problem("ieee", "33").plain
    assert checking.limit_error(plain, "ieee") == factor * limits["ieee"]
    assert checking.limit_error(plain.gemm, "ieee") == limits["ieee"]


def test_only_a_peer_may_fail(monkeypatch, capsys):
    def fail(problem):
        raise RuntimeError("no kernel\nand a page of reasons")

    problem = make_problem("bf16")
    monkeypatch.setitem(peers.VARIANTS, "cudnn", fail)
    assert peers.prepare_variants(problem, ["cudnn"]) == ({}, {})
    assert capsys.readouterr().out == "  cudnn: skipped: RuntimeError: no kernel\n"
    monkeypatch.setitem(peers.VARIANTS, "ours", fail)
    with pytest.raises(RuntimeError, match="no kernel"):
        peers.prepare_variants(problem, ["ours"])


def test_variants_and_precisions_have_names_in_the_form():
    assert set(peers.VARIANTS) <= set(results.VARIANTS)
    assert set(cases.MODELS) <= set(results.MODELS)
    assert tuple(comparison.PRECISIONS) == results.PRECISIONS
    assert set(checking.LARGEST_ERRORS) == set(results.PRECISIONS)
