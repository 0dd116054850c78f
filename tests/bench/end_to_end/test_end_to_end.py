"""bench.end_to_end without a GPU: its cases, rows of every model, the command."""

import functools
import json

import pytest
import torch
from fake_graphs import FakeGraphs

from bench.end_to_end import __main__ as command
from bench.end_to_end import cases, compile_ahead, measure, variants
from bench.end_to_end.cases import BATCHES, MODELS, RealCase, build_problem, list_cases
from bench.measure import machine, results
from bench.measure.checking import WrongResult
from bench.measure.timing import make_row
from bench.steps import checking
from bench.steps import measure as measure_steps
from cutlass_fused.timing import Timing
from examples.models import EXAMPLES

# So few that a call takes no time; more than one, for batch norms in training.
ROWS = 5


def make_case(model, which="inference", precision="ieee", m=ROWS):
    return RealCase(model, which, precision, m, MODELS[model].n, MODELS[model].k)


# ---- the cases ----


def test_every_model_in_both_passes():
    listed = list_cases()
    assert set(MODELS) == set(EXAMPLES) == set(results.EXTRA_MODELS["end_to_end"])
    # Two models are not trained on one row.
    assert len(listed) == len(set(listed)) == 8 * 2 * 3 * 5 - 2 * 3
    one_row = {case.model for case in listed if (case.which, case.m) == ("step", 1)}
    assert set(MODELS) - one_row == {"pointnet_head", "tabular_resnet"}
    assert {case.m for case in listed} == set(BATCHES) == {1, 16, 256, 4096, 16384}
    keys = {results.case_of(case.describe("end_to_end")) for case in listed}
    assert len(keys) == len(listed) and set(cases.VARIANTS) <= set(results.VARIANTS)
    # What is compiled ahead together follows each other.
    groups = [(case.model, case.which) for case in listed]
    assert [g for g, before in zip(groups, [None, *groups], strict=False) if g != before] == [
        (model, which) for which in ("inference", "step") for model in MODELS
    ]


def test_rows_say_what_takes_gradients():
    def find(which):
        listed = list_cases(passes=[which], batches=[16], precisions=["bf16"])
        return {case.model for case in listed if case.describe("end_to_end")["grad"]}

    assert find("inference") == {"potential"} and find("step") == set(MODELS)


def test_backend_is_timed_where_it_is(monkeypatch):
    case = make_case("pinn")
    monkeypatch.setattr(torch._dynamo, "list_backends", lambda: ["inductor"])
    assert cases.list_variants(cases.VARIANTS, case) == [
        *("ours", "ours_graphs", "eager", "compile", "compile_graphs")
    ]
    monkeypatch.setattr(torch._dynamo, "list_backends", lambda: ["inductor", "cutlass_fused"])
    assert cases.list_variants(cases.VARIANTS, case) == list(cases.VARIANTS)
    assert cases.list_variants(["eager"], case) == ["eager"]


# ---- the problems ----


@pytest.mark.parametrize("model", MODELS)
def test_problems_hold_the_published_model(model):
    for which in ("inference", "step"):
        problem = build_problem(make_case(model, which), "cpu")
        plain, example = problem.plain, EXAMPLES[model].build()
        assert plain.training == (which == "step") and len(problem.x) == ROWS
        kinds = [type(module) for module in example.modules()]
        if which == "step":  # two calls with dropout differ
            kinds = [kind for kind in kinds if kind is not torch.nn.Dropout]
        assert [type(module) for module in plain.modules()] == kinds
        linears = [module for module in plain.modules() if isinstance(module, torch.nn.Linear)]
        assert problem.case.k == linears[0].in_features
        assert problem.case.n == linears[-1].out_features
    asked = problem.list_asked()
    assert ("x" in asked) == (model in ("pointnet_head", "vit_mlp", "dlrm_top", "moe_router"))


def test_dtypes_are_those_of_the_precision_but_for_lengths_and_heads():
    def list_dtypes(model):
        problem = build_problem(make_case(model, "step", "bf16"), "cpu")
        weight = next(problem.plain.parameters())
        return problem.x.dtype, weight.dtype, problem.grad.dtype

    half, full = torch.bfloat16, torch.float32
    assert list_dtypes("pinn") == (half, half, half)
    assert list_dtypes("potential") == (full, half, full)
    assert list_dtypes("moe_router") == (half, full, full)


def test_numbers_are_the_same_in_every_precision():
    found = [build_problem(make_case("vit_mlp", "step", p), "cpu") for p in cases.PRECISIONS]
    for problem in found[1:]:
        torch.testing.assert_close(problem.x.float(), found[0].x, rtol=1e-2, atol=1e-2)
        pairs = zip(problem.plain.parameters(), found[0].plain.parameters(), strict=True)
        for ours, expected in pairs:
            torch.testing.assert_close(ours.float(), expected, rtol=1e-2, atol=1e-2)


def test_a_kink_widens_no_limit_of_a_result():
    for which, most in (("inference", 1e-5), ("step", 1e-2)):
        problem = build_problem(make_case("dlrm_top", which, m=4096), "cpu")
        limit = checking.limit_of_product(problem, "itself", torch.ones(100))
        assert (limit == most) == (which == "inference") and limit <= most


def test_rounds_follow_the_size():
    def choose(model, m, which="step"):
        return measure.choose_rounds(15, build_problem(make_case(model, which, m=m), "cpu"))

    assert choose("pinn", 16) == 15
    large = build_problem(make_case("vit_mlp", "step"), "cpu")
    large = large._replace(case=large.case._replace(m=10**7))
    assert measure.choose_rounds(15, large) == measure_steps.FEWEST_ROUNDS
    assert measure.count_elements(large) == 2 * 768 * 3072


# ---- a case is measured ----


@pytest.fixture
def without_gpu(monkeypatch):
    """Nor does it compile for one: what torch.compile hands on runs as it is."""
    compile = torch.compile

    def compile_less(target, mode=None, backend=None, **options):
        compile_less.backends.append(backend)
        return compile(target, backend="aot_eager", **options)

    compile_less.backends = []
    monkeypatch.setattr(torch, "compile", compile_less)
    monkeypatch.setattr(cases, "has_backend", lambda: True)
    monkeypatch.setattr(measure_steps, "Graphs", FakeGraphs)
    return compile_less


@pytest.mark.parametrize("which", ["inference", "step"])
@pytest.mark.parametrize("model", MODELS)
def test_rows_of_every_model(model, which, without_gpu):
    """Ours through `fuse` and, where a pass takes no gradient inside, also captured."""
    case, failures = make_case(model, which), {}
    names = ["ours", "ours_graphs", "eager"]
    rows = measure.measure("cpu", 1, names, failures, case)
    assert [row["variant"] for row in rows] == names and not failures
    for row in rows:
        results.check_row(row)
        assert (row["M"], row["N"], row["K"]) == (ROWS, case.n, case.k)
        assert row["mode"] == {"inference": "eval", "step": "train"}[which]
        assert row["wall_ms"] > 0 and 0 < row["rel_err"] < 1e-5
    assert command.format_table(rows).count("\n") == 3


@pytest.mark.parametrize("model", ["moe_router", "potential"])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_rows_in_other_precisions(model, precision, without_gpu):
    rows = measure.measure("cpu", 1, ["ours", "eager"], {}, make_case(model, "step", precision))
    assert len(rows) == 2
    assert all(row["rel_err"] < {"tf32": 1e-5, "bf16": 5e-2}[precision] for row in rows)


@pytest.mark.parametrize("model, which", [("dlrm_top", "step"), ("potential", "inference")])
def test_compiled_variants_compute_the_same(model, which, without_gpu):
    names = [*cases.OF_BACKEND, "eager", "compile", "compile_graphs"]
    rows = measure.measure("cpu", 1, names, {}, make_case(model, which))
    assert [row["variant"] for row in rows] == names
    assert all(row["rel_err"] < 1e-5 for row in rows)
    assert without_gpu.backends == ["cutlass_fused"] * 2 + [None] * 2


def test_wrong_results_of_ours_are_never_timed(without_gpu, monkeypatch):
    def fuse_wrongly(plain, precision):
        plain[2].negative_slope = 0.21
        return plain

    monkeypatch.setattr(cases, "fuse", fuse_wrongly)
    for which in ("inference", "step"):
        failures, case = {}, make_case("stylegan2_mapping", which)
        rows = measure.measure("cpu", 1, ["eager", "ours"], failures, case)
        assert [row["variant"] for row in rows] == ["eager"]
        assert failures == {"ours": WrongResult}


# ---- compiling ahead ----


class FakePool:
    def __init__(self):
        self.submitted = []

    def submit(self, *arguments):
        self.submitted.append(arguments)
        return self

    def result(self):
        raise RuntimeError("the process died")


def test_cases_of_a_group_are_compiled_once():
    todo = list_cases(names=["pinn", "vit_mlp"], batches=[1, 16])
    ahead = compile_ahead.Ahead(todo, ["ours", "eager", "compile", "compile_graphs"], 4)
    ahead.pool = FakePool()
    for case in todo:
        if (case.model, case.which) == ("pinn", "step"):
            ahead.prepare(case)
    assert len(ahead.pool.submitted) == 6
    for compile_case, device, names, case in ahead.pool.submitted:
        assert compile_case is compile_ahead.compile_case
        assert device == "cuda" and names == ["ours", "compile", "compile_graphs"]
        assert (case.model, case.which) == ("pinn", "step")


def test_nothing_is_compiled_ahead_by_one_process_or_for_eager():
    todo = list_cases(names=["pinn"], batches=[16])
    with compile_ahead.Ahead(todo, ["compile"], 1) as ahead:
        ahead.prepare(todo[0])
        assert ahead.pool is None
    ahead = compile_ahead.Ahead(todo, ["ours_graphs", "eager"], 4)
    ahead.pool = FakePool()
    ahead.prepare(todo[0])
    assert not ahead.pool.submitted


def test_what_is_compiled_ahead_is_called_once(monkeypatch):
    called = []

    def build(name, problem, names):
        if name == "compile":
            raise RuntimeError("it cannot be compiled")
        called.append((name, names))
        return functools.partial(called.append, "run")

    monkeypatch.setattr(compile_ahead, "build", build)
    case = make_case("dlrm_top", "step")
    compile_ahead.compile_case("cpu", ["compile", "compile_graphs"], case)
    ((name, asked), run) = called
    assert name == "compile_graphs" and run == "run" and asked[:2] == ["x", "0.weight"]


# ---- the command ----


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*arguments) -> (what main returns, the cases measured). `run.fails`: model -> what fails
    there."""
    measured = []

    def measure_fake(device, rounds, names, failures, case):
        measured.append(case)
        failures.update(run.fails.get(case.model, {}))
        return [
            make_row(case.describe("end_to_end"), name, Timing(3, 2, 4), 0.0, wall_ms=5.0)
            for name in cases.list_variants(names, case)
            if name not in failures
        ]

    def main(*arguments):
        measured.clear()
        fixed = ["--out", str(tmp_path), "--commit", "abc", "--processes", "1"]
        return command.main([*fixed, *arguments]), list(measured)

    run = main
    run.fails = {}
    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    meta = dict.fromkeys(results.META, "any")
    monkeypatch.setattr(machine, "describe_machine", lambda commit: meta)
    monkeypatch.setattr(command, "measure", measure_fake)
    return run


def test_a_run_in_pieces_goes_on(run, tmp_path, capsys):
    piece = ("--models", "pinn,vit_mlp", "--passes", "step", "--precisions", "bf16")
    code, measured = run(*piece, "--batches", "16,1")
    assert code == 0 and measured == list_cases(["vit_mlp", "pinn"], ["step"], ["bf16"], [1, 16])
    assert "4 cases, about " in capsys.readouterr().out
    assert run(*piece, "--batches", "16,1") == (0, [])
    assert "0 cases, about 0 minutes" in capsys.readouterr().out
    assert {case.m for case in run(*piece)[1]} == {256, 4096, 16384}
    code, rest = run()
    assert code == 0 and len(rest) == len(list_cases()) - 10
    assert run()[1] == []
    rows = json.loads((tmp_path / "end_to_end.json").read_text())["rows"]
    assert {row["wall_ms"] for row in rows} == {5.0}


def test_what_fails_does_not_end_a_run(run, capsys):
    piece = ("--passes", "inference", "--precisions", "ieee", "--batches", "16")
    run.fails["pinn"] = {"compile": NotImplementedError}
    assert run(*piece)[0] == 0
    assert "1 variants are left out" in capsys.readouterr().out
    assert [case.model for case in run(*piece)[1]] == ["pinn"]  # it is tried again
    run.fails["pinn"] = {"compile": WrongResult}
    assert run(*piece)[0] == 0
    run.fails["pinn"] = {"ours_graphs": WrongResult}
    assert run(*piece)[0] == 1


def test_estimates_grow_with_what_is_compiled():
    def estimate(names, processes=1, **which):
        return command.estimate_seconds(list_cases(**which), names, processes)

    few = {"names": ["eager", "ours"]}
    assert estimate(few["names"]) == len(list_cases()) * command.SECONDS["case"]
    compiled = ["eager", "compile"]
    assert estimate(compiled) > estimate(compiled, processes=8) > estimate(few["names"])
    assert estimate(compiled, passes=["step"], batches=[16]) > estimate(
        compiled, passes=["inference"], batches=[16]
    )


def test_variants_are_those_of_their_table():
    assert set(variants.FORWARDS) == set(cases.VARIANTS)
