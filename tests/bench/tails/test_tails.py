"""bench.tails without a GPU: its cases, rows of all models, wrong results, the table."""

import argparse
from types import SimpleNamespace

import linear_tails
import pytest
import torch
from fake_graphs import FakeGraphs
from result_rows import make_row

from bench.end_to_end import compile_ahead as end_to_end
from bench.measure import results, timing
from bench.measure.checking import WrongResult
from bench.plotting.end_to_end import tails
from bench.steps import checking
from bench.steps import measure as measure_steps
from bench.tails import __main__ as command
from bench.tails import cases, compile_ahead
from cutlass_fused.timing import Timing

MOST = {"ieee": 1e-5, "bf16": 5e-2, "tf32": 1e-5}
TINY = {"m": 5, "n": 12, "k": 8}


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    monkeypatch.setattr(measure_steps, "Graphs", FakeGraphs)


def make_case(model, which="inference", precision="ieee"):
    return cases.TailCase(model, which, precision, **TINY)


def test_every_model_in_every_pass_and_precision():
    listed = cases.list_cases()
    assert len(listed) == len(set(listed)) == (2 * len(cases.MODELS) - 1) * 2 * 3
    keys = {results.case_of(case.describe("tails")) for case in listed}
    assert len(keys) == len(listed) and set(cases.VARIANTS) <= set(results.VARIANTS)
    left_out = {case.model for case in listed} - {c.model for c in listed if c.which == "step"}
    assert left_out == {"dropout, softmax"}


def test_what_matters_most_comes_first():
    listed = cases.list_cases(["nothing"])
    assert [(case.which, case.m, case.precision) for case in listed] == [
        (which, m, precision)
        for which in ("inference", "step")
        for m in (1024, 16)
        for precision in ("ieee", "bf16", "tf32")
    ]


def test_models_are_chosen_by_how_they_begin_or_by_their_numbers():
    assert command.parse_models("sequential;batch norm, s;1") == [
        *("nothing", "batch norm, scale, softmax", "batch norm, softmax", "batch norm, silu"),
        "sequential",
    ]
    assert command.parse_models(";".join(cases.MODELS)) == list(cases.MODELS)
    for text in ("", "relu;", "0", str(len(cases.MODELS) + 1), "softmax"):
        with pytest.raises(argparse.ArgumentTypeError, match="1 nothing; 2 relu"):
            command.parse_models(text)


@pytest.mark.parametrize("which", cases.PASSES)
@pytest.mark.parametrize("name", cases.MODELS)
def test_every_model_runs_fused(name, which):
    """Its result, or its gradients, are those that the bench would take."""
    if which == "step" and cases.has_dropout(name):
        pytest.skip("no case: two steps of it differ")
    case = make_case(name, which)
    problem = cases.build_problem(case, "cpu")
    assert (linear_tails.K, linear_tails.N) == (8, 12)
    with torch.set_grad_enabled(which == "step"):
        truth = checking.compute_gradients(problem)
        names = [key for key in truth if key != "itself"]
        eager, ours = (
            command.build(variant, problem.fork(), names)() for variant in ("eager", "ours")
        )
    assert len(names) == len(dict(problem.plain.named_parameters())) * (which == "step")
    expected = checking.expect_errors(problem, eager, truth)
    error = checking.find_worst(problem, "ours", ours, truth, expected)
    row = timing.make_row(case.describe("tails"), "ours", Timing(3, 2, 4), error)
    results.check_row(row)
    assert row["model"] == name and (row["M"], row["N"], row["K"]) == (5, 12, 8)


@pytest.mark.parametrize(
    "precision, which",
    [("ieee", "inference"), ("bf16", "inference"), ("tf32", "step"), ("bf16", "step")],
)
def test_rows(precision, which):
    failures, names = {}, ["ours", "ours_graphs", "eager"]
    rows = command.measure("cpu", 1, names, failures, make_case("layer norm", which, precision))
    assert [row["variant"] for row in rows] == names and not failures
    for row in rows:
        results.check_row(row)
        assert row["mode"] == {"inference": "eval", "step": "train"}[which]
        assert row.get("grad", False) == (which == "step") and "weight" not in row
        assert row["wall_ms"] > 0 and 0 < row["rel_err"] < MOST[precision]
    assert command.format_table(rows).count("\n") == len(names)


def test_models_are_compiled_and_what_joins_their_results_is_not(monkeypatch):
    compiled = []

    def compile(model, **options):
        compiled.append((type(model), options))
        return model

    monkeypatch.setattr(torch, "compile", compile)
    names = ["eager", "compile", "compile_graphs"]
    rows = command.measure("cpu", 1, names, {}, make_case("read twice"))
    assert [row["variant"] for row in rows] == names
    plain = {"dynamic": False}
    assert compiled == [
        (linear_tails.Behind, plain),
        (linear_tails.Behind, plain | {"mode": "reduce-overhead"}),
    ]


def test_models_have_the_size_of_a_users():
    problem = cases.build_problem(cases.TailCase("read twice", "step", "bf16", 16), "cpu")
    assert problem.plain.fc.weight.shape == (768, 512) and problem.plain.training
    assert problem.x.shape == (16, 512) and problem.grad.shape == (16, 2 * 768)
    assert problem.x.dtype == problem.grad.dtype == problem.plain.fc.weight.dtype == torch.bfloat16
    with pytest.raises(ZeroDivisionError), cases.resize(1, 2):
        assert (linear_tails.N, linear_tails.K) == (1, 2)
        raise ZeroDivisionError
    assert (linear_tails.N, linear_tails.K) == (12, 8)


@pytest.mark.parametrize("variant, which", [("ours", "inference"), ("ours_graphs", "step")])
def test_wrong_results_of_ours_are_never_timed(variant, which, monkeypatch):
    def fuse_wrongly(plain, precision):
        plain.act = torch.nn.GELU()
        return plain

    monkeypatch.setattr(cases, "fuse", fuse_wrongly)
    case, failures = make_case("gelu of tanh", which), {}
    rows = command.measure("cpu", 1, ["eager", variant], failures, case)
    assert [row["variant"] for row in rows] == ["eager"]
    assert failures == {(case, variant): WrongResult}


def test_zero_is_no_excuse(monkeypatch):
    """This model's result is zero, and so are its gradients: any other number is wrong."""

    def fuse_wrongly(plain, precision):
        plain.tail = lambda model, z, x: z[:, :1] * 1e-30
        return plain

    monkeypatch.setattr(cases, "fuse", fuse_wrongly)
    case, failures = make_case("largest, less the mean, gelu"), {}
    rows = command.measure("cpu", 1, ["eager", "ours"], failures, case)
    assert [(row["variant"], row["rel_err"]) for row in rows] == [("eager", 0.0)]
    assert failures == {(case, "ours"): WrongResult}


def test_failures_leave_the_others(monkeypatch, capsys):
    def refuse(*arguments, **options):
        raise MemoryError("of a peer")

    monkeypatch.setattr(torch, "compile", refuse)
    case, failures = make_case("relu"), {}
    rows = command.measure("cpu", 1, ["ours", "eager", "compile"], failures, case)
    assert [row["variant"] for row in rows] == ["ours", "eager"]
    assert failures == {(case, "compile"): MemoryError}
    monkeypatch.setattr(command, "build_problem", refuse)
    assert command.measure("cpu", 1, ["ours"], failures, case) == []
    assert failures[case, "all"] is MemoryError
    assert "the case is left out: MemoryError: of a peer" in capsys.readouterr().out


def test_a_group_is_compiled_ahead(monkeypatch):
    """That of one pass, number of rows and precision; each of its cases in the pass it is for."""
    submitted, run = [], []
    todo = cases.list_cases(["relu", "layer norm"])
    of_ahead = compile_ahead.compile_tail, compile_ahead.group_tails
    ahead = end_to_end.Ahead(todo, cases.VARIANTS, 2, *of_ahead)
    ahead.pool = SimpleNamespace(submit=lambda *given: submitted.append(given))
    for case in todo[:3]:
        ahead.prepare(case)
    assert {given[0] for given in submitted} == {compile_ahead.compile_tail}
    assert [given[3] for given in submitted] == todo[:4]  # of two groups
    assert {tuple(given[2]) for given in submitted} == {("ours", "compile", "compile_graphs")}

    def build(name, problem, names):
        run.append((name, torch.is_grad_enabled(), problem.case.which))
        return lambda: None

    monkeypatch.setattr(end_to_end, "build", build)
    for which in cases.PASSES:
        compile_ahead.compile_tail("cpu", ["compile"], make_case("relu", which))
    assert run == [("compile", False, "inference"), ("compile", True, "step")]


def test_only_models_of_this_suite_have_any_name():
    row = make_row("any, name", suite="tails")
    results.check_row(row)
    with pytest.raises(results.InvalidResult, match="suite chains has no model 'any, name'"):
        results.check_row(row | {"suite": "chains"})
    with pytest.raises(results.InvalidResult, match="model cannot be ''"):
        results.check_row(row | {"model": ""})


# Made up. Of these eager is the better one outside of graphs.
MS = {"ours": 1.0, "ours_graphs": 0.5, "eager": 2.0, "compile": 3.0, "compile_graphs": 1.0}


def make_rows(model, mode="eval", precision="ieee", m=16, **changes):
    """Of all variants; on the host's clock all take 1 ms longer."""
    size = {"suite": "tails", "M": m, "N": 768, "K": 512}
    return [
        make_row(model, mode, precision, variant=name, ms=ms, wall_ms=ms + 1, **size)
        for name, ms in (MS | changes).items()
    ]


def test_table():
    """A line for each pass and precision, inference first; the least, and whose it is."""
    rows = make_rows("relu", "train", "bf16")
    rows += make_rows("relu", precision="bf16") + make_rows("relu", m=1024, compile=0.5)
    rows += make_rows("relu") + make_rows("gelu", eager=8.0, compile=32.0, compile_graphs=0.25)
    text, titles, lines = tails.tabulate_tails(rows)
    assert text == tails.TAILS and len(titles) == 5 and titles[1] == "models"
    plain = [f'**{r}** (least {r}: "relu", 16 rows)' for r in ("2.00", "1.50", "2.00")]
    assert lines == [
        [
            'inference, fp32 `"ieee"`',
            "2",
            '**2.00** (least 0.50: "relu", 1024 rows)',  # of 0.5, 2 and 8
            '**2.16** (least 1.50: "relu", 16 rows)',
            '**1.26** (least 0.50: "gelu", 16 rows)',
        ],
        ["inference, bf16", "1", *plain],
        ["training step, bf16", "1", *plain],
    ]


def test_what_was_not_timed_is_in_no_mean():
    rows = [row for row in make_rows("relu") if row["variant"] not in ("eager", "ours_graphs")]
    ((_, _, *cells),) = tails.tabulate_tails(rows)[2]
    assert cells == ['**3.00** (least 3.00: "relu", 16 rows)', "", ""]
    assert tails.list_lost(rows) == []


def test_slow_cases_are_listed():
    rows = make_rows("nothing") + make_rows("relu", eager=0.99, compile_graphs=0.49)
    rows += make_rows("selu", "train", "tf32", 1024, compile=0.9)
    rows += make_rows("gated", precision="bf16", ours_graphs=2.0)
    graphs = "CUDA graphs, the GPU's time"
    assert tails.list_lost(rows) == [
        f'"gated", 16 rows, inference, bf16, {graphs}: 0.500',
        '"selu", 1024 rows, training step, tf32, the GPU\'s time: 0.900',
    ]
    assert len(tails.list_lost([*rows, *make_rows("relu", m=1024, eager=0.97)])) == 3
