"""bench.training without a GPU: its cases, ours in whole models, the check, rows, the command."""

import json

import pytest
import torch
from fake_graphs import FakeGraphs

from bench import training
from bench.measure import checking as measure_checking
from bench.measure import machine, results
from bench.measure.timing import CALLS_IN_TURN, make_row
from bench.steps import cases, checking, measure, models, rounding, variants
from bench.steps.cases import MODELS, StepCase, build_step_problem, list_planned
from cutlass_fused import nn
from cutlass_fused.timing import Timing

# So small that a step takes no time; one of each kind, and both ways to differentiate inside.
SMALL = {
    "12": (24, 20, 16),
    "33": (24, 20, 16),
    "84": (24, 20, 16),
    "pinn": (24, 1, 2),
    "energies_3": (24, 16, 16),
    "forces_3": (24, 16, 16),
    "force_step_3": (24, 16, 16),
}


def make_case(model, precision="ieee"):
    return StepCase(model, precision, *SMALL[model])


# ---- the cases ----


def test_every_model_in_its_precisions():
    listed = cases.list_step_cases(cases.WORDS)
    assert len(listed) == len(set(listed)) == 5 * 4 + 7 * 3 + 36 * 2
    layers = [case for case in listed if MODELS[case.model].kind == "layer"]
    assert listed[: len(layers)] == layers
    assert {case.model for case in layers} == {"12", "33", "39", "84"}
    assert ("12", 4096, 1024, 1024) in {(c.model, c.m, c.n, c.k) for c in layers}
    assert {case.m for case in listed if case.model == "stylegan2_mapping"} == {16, 4096}
    names = {*results.MODELS, *results.EXTRA_MODELS["training"]}
    assert names == MODELS.keys() and set(cases.VARIANTS) <= set(results.VARIANTS)
    keys = {results.case_of(case.describe("training")) for case in listed}
    assert len(keys) == len(listed)


def test_named_precisions_are_those_of_all():
    listed = cases.list_step_cases(["vit_mlp", "forces"], ["fp16"])
    assert [case.precision for case in listed] == ["fp16"] * (1 + 3 * 4)
    assert {case.model for case in listed} == {"vit_mlp", "forces_3", "forces_5", "forces_8"}


def test_the_captured_variant_is_the_last():
    """As torch.compile's own captures free workspaces of cuBLAS."""
    ordered = measure.order_variants(list_planned((), make_case("33")))
    assert ordered[-1] == "ours_graphs"
    assert sorted(ordered) == sorted(
        variants.FORWARDS.keys() - {"ours_compile_graphs"} | {"bare_products"}
    )
    assert [name for name in ordered if name != "ours_graphs"] == [
        name for name in list_planned((), make_case("33")) if name != "ours_graphs"
    ]


def test_potentials_are_compiled_at_one_size_unless_named():
    listed = cases.list_step_cases(["energies", "forces", "force_step"], ["ieee"])
    compiled = [case for case in listed if "compile" in list_planned((), case)]
    assert {(case.model[-2:], case.n) for case in compiled} == {("_5", 128)} and len(compiled) == 3
    assert all(list_planned(["ours", "compile"], case) == ["ours", "compile"] for case in listed)
    for case in cases.list_step_cases(cases.WORDS):
        planned = list_planned((), case)
        assert {"ours", "ours_graphs", "eager"} <= set(planned)
        assert ("bare_products" in planned) == (MODELS[case.model].kind == "layer")
        assert ("ours_compile_graphs" in planned) == (MODELS[case.model].kind == "whole")


# ---- whole models ----


def build(name):
    torch.manual_seed(0)
    m, n, k = MODELS[name].shapes[0]
    return MODELS[name].build_plain(k, n), torch.randn(8, k)


@pytest.mark.parametrize(
    "name, ours",
    [
        ("stylegan2_mapping", [nn.LinearScaleLeakyReLU] * 8),
        ("pointnet_head", [nn.LinearScaleBatchNorm1d] * 2 + [nn.Linear]),
        ("tabular_resnet", [nn.Linear] + [nn.LinearScaleLeakyReLU, nn.Linear] * 2 + [nn.Linear]),
        ("dlrm_top", [nn.LinearScaleLeakyReLU] * 4 + [nn.Linear]),
        ("pinn", [nn.LinearActivation] * 8 + [nn.Linear]),
        ("vit_mlp", [nn.LinearActivation, nn.Linear]),
        ("energies_5", [nn.LinearActivation] * 4 + [nn.Linear]),
    ],
)
def test_each_linear_is_ours_with_what_follows(name, ours):
    plain, x = build(name)
    replaced = models.replace_linears(plain, "ieee")
    kinds = tuple(getattr(nn, kind) for kind in nn.__all__ if kind != "map_state_dict")
    found = [module for module in replaced.modules() if isinstance(module, kinds)]
    assert [type(module) for module in found] == ours
    assert all(module.precision == "ieee" for module in found)
    assert set(replaced.parameters()) >= set(plain.parameters())
    # Batch norm in eval, so that one call leaves the other's statistics alone.
    torch.testing.assert_close(replaced.eval()(x), plain.eval()(x))


def test_weights_keep_the_size_of_what_passes():
    for name in ("stylegan2_mapping", "dlrm_top", "energies_8"):
        plain, x = build(name)
        models.draw_weights(plain)
        assert 0.1 < plain[:-1](x).std() < 10


def test_forks_share_memory_and_versions_and_no_leaves():
    problem = build_step_problem(make_case("33"), "cpu")
    own = problem.fork()
    pairs = list(zip(problem.plain.parameters(), own.plain.parameters(), strict=True))
    assert all(a is not b and a.data_ptr() == b.data_ptr() for a, b in pairs)
    assert own.x is not problem.x and own.x.is_leaf and own.x.requires_grad
    before = [(b._version, b.clone()) for _, b in pairs]
    measure.change_weights(problem)
    for (_, b), (version, values) in zip(pairs, before, strict=True):
        assert b._version == version + 1 and torch.equal(b, values)
    own.plain(own.x)
    assert problem.plain.bn.num_batches_tracked == 0 and own.plain.bn.num_batches_tracked == 1


# ---- the check ----


def test_error_is_that_of_the_worst_gradient():
    truth = {"a": torch.full((4,), 2.0).double(), "b": torch.full((2,), 1e-14).double()}
    found = [torch.full((4,), 2.02), torch.full((2,), 0.002)]
    # b is zero but for rounding.
    assert checking.compute_errors(found, truth) == pytest.approx({"a": 0.01, "b": 0.001})


def test_gradients_are_those_of_the_task():
    shapes = {"x": (24, 16), "gemm.weight": (20, 16), "gemm.bias": (20,)}
    found = checking.compute_gradients(build_step_problem(make_case("12"), "cpu"))
    assert {name: tuple(g.shape) for name, g in found.items()} == shapes
    (forces,) = checking.compute_gradients(
        build_step_problem(make_case("forces_3"), "cpu")
    ).values()
    assert forces.shape == (24, 16) and forces.dtype == torch.float64
    # Forces do not know the last bias.
    names = checking.compute_gradients(build_step_problem(make_case("force_step_3"), "cpu")).keys()
    assert {"0.weight", "0.bias", "4.weight"} <= names and "4.bias" not in names


def find_one(problem, variant, factor=1.0):
    truth = checking.compute_gradients(problem)
    eager = checking.compute_errors([g.clone() for g in truth.values()], truth)
    found = [factor * gradient for gradient in truth.values()]
    return checking.find_worst(problem, variant, found, truth, eager)


def test_large_errors_are_told():
    problem = build_step_problem(make_case("33"), "cpu")
    assert find_one(problem, "ours", 1 + 5e-6) == pytest.approx(5e-6, rel=1e-3)
    with pytest.raises(measure_checking.WrongResult, match="ours: the gradient of"):
        find_one(problem, "ours", 1 + 3e-4)
    # Behind a kink rounding does more.
    kinked = build_step_problem(make_case("12"), "cpu")
    assert find_one(kinked, "ours", 1 + 3e-4) > 2e-4
    with pytest.raises(measure_checking.WrongResult):
        find_one(kinked, "ours", 1.2)
    with pytest.raises(measure_checking.WrongResult):
        find_one(problem, "eager", 1 + 2e-3)


def test_products_in_tf32():
    """Of 10 bits behind the first; ties go to the even number."""
    halves = torch.tensor([[1, 3, 2, -1.25]], dtype=torch.float64) * 2**-11
    x, expected = 1 + halves, 1 + torch.tensor([[0, 4, 2, -1.25]]).double() * 2**-11
    expected[0, 3] = 1 - 2**-11  # below 1 the step is half as long
    x.requires_grad_()
    linear = torch.nn.Linear(4, 4, bias=False).double()
    with torch.no_grad():
        linear.weight.copy_(torch.eye(4))
    rounding.round_products(linear)
    y = linear(x)
    assert torch.equal(y, expected)
    given = x.detach() * torch.ones(1, 4)
    (gradient,) = torch.autograd.grad((y * given).sum(), x)
    assert torch.equal(gradient, expected)


def test_tf32_may_cross_kinks_also_where_eager_multiplies_in_fp32():
    problem = build_step_problem(StepCase("stylegan2_mapping", "tf32", 16, 512, 512), "cpu")
    truth = checking.compute_gradients(problem)
    rounded = checking.compute_gradients(problem, rounding.round_products)
    found = [rounded[name] for name in truth]
    expected = checking.expect_errors(problem, list(truth.values()), truth)
    assert 1e-2 < checking.find_worst(problem, "ours", found, truth, expected) < 1e-1
    with pytest.raises(measure_checking.WrongResult):  # another slope
        checking.find_worst(problem, "ours", [1.2 * g for g in found], truth, expected)
    # Eager's are what is expected where they are larger, and in fp32.
    eager = [1.5 * gradient for gradient in truth.values()]
    for each in (problem, problem._replace(case=problem.case._replace(precision="ieee"))):
        errors = checking.expect_errors(each, eager, truth)
        assert list(errors.values()) == pytest.approx([0.5] * len(truth))


def test_bare_products_stay_in_fp16():
    """Gradients in front of a softmax are N times as large, and sums of them left fp16."""
    problem = build_step_problem(StepCase("84", "fp16", 64, 8192, 8), "cpu")
    assert problem.grad.std() > 8000
    products = variants.build_products(problem)()
    truth = checking.compute_products(problem)
    assert max(checking.compute_errors(products, truth).values()) < 1e-3


# ---- a case is measured ----


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    """Nor does it compile for one: what torch.compile hands on runs as it is."""
    compile = torch.compile

    def compile_less(target, mode=None, **options):
        return compile(target, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", compile_less)
    monkeypatch.setattr(measure, "Graphs", FakeGraphs)


def measure_one(name, precision="ieee", variants=("ours", "ours_graphs", "eager"), failures=None):
    failures = {} if failures is None else failures
    return measure.measure_step("cpu", 2, list(variants), failures, make_case(name, precision))


@pytest.mark.parametrize("precision", ["ieee", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("name", ["12", "33", "84", "energies_3", "forces_3"])
def test_rows_pass_the_form(name, precision):
    names = ["ours", "ours_graphs", "eager"] + ["bare_products"] * (name == "12")
    rows = measure_one(name, precision, names)
    assert [(row["weight"], row["variant"]) for row in rows] == [
        (weight, variant) for weight in ("new", "kept") for variant in names
    ]
    m, n, k = SMALL[name]
    for row in rows:
        results.check_row(row)
        assert row["grad"] is True and row["mode"] == "train" and row["suite"] == "training"
        assert (row["M"], row["N"], row["K"]) == (m, n, k)
        most = {"ieee": 1e-5, "tf32": 1e-5, "bf16": 0.2, "fp16": 0.05}[precision]  # CPUs have fp32
        assert 0 < row["rel_err"] < most
        # Both clocks are the host's here, and memory is not counted.
        assert row["wall_ms"] > 0 and "peak_mib" not in row
    assert training.format_table(rows).count("\n") == len(names)


@pytest.mark.parametrize("name", ["33", "pinn", "force_step_3"])
def test_compiled_variants_compute_the_same(name):
    """Also where a gradient is taken inside of what is compiled."""
    rows = measure_one(name, variants=["eager", *cases.COMPILED])
    assert len(rows) == 10
    assert all(row["rel_err"] < 1e-5 for row in rows)


def test_weights_are_written_to_in_front_of_each_new_step(monkeypatch):
    versions, build = [], variants.build_step

    def build_logged(variant, problem, names):
        step = build(variant, problem, names)

        def logged():
            versions.append(problem.plain.gemm.weight._version)
            return step()

        return logged

    monkeypatch.setattr(measure, "build_step", build_logged)
    measure_one("12", variants=["eager"])
    # To prepare; warm-up, two rounds, and by the host's clock one turn; the same without writes.
    timed = measure.WARM_UP_ROUNDS + 2 + 1 + CALLS_IN_TURN
    changes = [after - before for before, after in zip(versions, versions[1:], strict=False)]
    assert changes[-2 * timed :] == [1] * timed + [0] * timed
    assert set(changes[: -2 * timed]) == {0}


def test_wrong_gradients_are_never_timed_and_others_are(monkeypatch, capsys):
    build = variants.take_ours

    def take_wrong(problem):
        ours = build(problem)
        ours.multiplier = 2.5
        return ours

    wrong = {"ours": lambda problem: variants.build_forward(take_wrong, problem)}
    monkeypatch.setattr(variants, "FORWARDS", variants.FORWARDS | wrong)
    failures = {}
    rows = measure_one("12", failures=failures)
    assert [row["variant"] for row in rows] == ["ours_graphs", "eager"] * 2
    assert failures == {"ours": measure_checking.WrongResult}
    assert "ours: skipped: WrongResult: ours: the gradient of" in capsys.readouterr().out


def test_rounds_follow_the_size():
    def choose(*shape):
        return measure.choose_rounds(15, StepCase("12", "ieee", *shape))

    assert choose(1024, 8192, 8192) == choose(64, 64, 64) == 15
    assert 5 < choose(16384, 4096, 4096) < 15
    assert choose(65536, 8192, 8192) == measure.FEWEST_ROUNDS


# ---- the command ----


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*arguments) -> (what main returns, the cases measured). `run.fails`: case -> what a case
    does instead."""
    measured = []

    def measure_fake(device, rounds, variants, failures, case):
        measured.append(case)
        if case.model in run.fails:
            run.fails[case.model](failures)
        return [
            make_row(case.describe("training", weight), name, Timing(3, 2, 4), 0.0, wall_ms=5.0)
            for weight in ("new", "kept")
            for name in list_planned(variants, case)
            if name not in failures
        ]

    def main(*arguments):
        measured.clear()
        code = training.main(["--out", str(tmp_path), "--commit", "abc", *arguments])
        return code, list(measured)

    run = main
    run.fails = {}
    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    meta = dict.fromkeys(results.META, "any")
    monkeypatch.setattr(machine, "describe_machine", lambda commit: meta)
    monkeypatch.setattr(training, "measure_step", measure_fake)
    return run


def test_measured_cases_are_found_again(run, tmp_path):
    code, first = run()
    assert code == 0 and first == cases.list_step_cases(cases.WORDS)
    assert run() == (0, [])
    assert len(run("--models", "forces", "--precisions", "bf16")[1]) == 12
    # Those that have compiled variants by default are not enough where they are named.
    assert len(run("--models", "forces", "--precisions", "ieee", "--variants", "compile")[1]) == 11
    rows = json.loads((tmp_path / "training.json").read_text())["rows"]
    assert {row["weight"] for row in rows} == {"new", "kept"}


def test_what_fails_does_not_end_a_run(run, capsys):
    def run_out(failures):
        raise torch.OutOfMemoryError("CUDA out of memory")

    run.fails["12"] = run_out
    run.fails["33"] = lambda failures: failures.update({"ours": NotImplementedError})
    arguments = ("--models", "12,33,84", "--precisions", "ieee")
    code, measured = run(*arguments)
    assert code == 0 and [case.model for case in measured] == ["12", "12", "33", "84"]
    told = capsys.readouterr().out
    assert told.count("the case is left out: OutOfMemoryError") == 2
    assert "3 variants are left out" in told and "ours: NotImplementedError" in told
    # They are tried again.
    assert [case.model for case in run(*arguments)[1]] == ["12", "12", "33"]
    wrong = measure_checking.WrongResult
    run.fails["33"] = lambda failures: failures.update({"ours_compile": wrong})
    assert run(*arguments)[0] == 1
    run.fails["33"] = lambda failures: failures.update({"compile": wrong})
    assert run(*arguments)[0] == 0
