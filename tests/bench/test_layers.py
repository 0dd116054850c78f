"""Softmax and batch norm alone, as bench.memory_bound times them: truth in pieces, check, rows."""

import functools

import pytest
import torch

from bench import memory_bound
from bench.cases import layers, peers
from bench.cases.cases import Case
from bench.measure import checking, results
from cutlass_fused import comparison

# Neither is a multiple of the pieces below.
M, N = 40, 37


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(layers, "MOST_ELEMENTS", 5 * M)


def make_problem(model, precision="ieee"):
    case = Case(model, layers.LAYERS[model].mode, precision, M, N, 0)
    return layers.build_layer_problem(case, "cpu")


def test_cases_are_twelve_shapes_in_two_precisions():
    cases = memory_bound.list_layer_cases(list(layers.LAYERS), list(memory_bound.PRECISIONS))
    assert len(cases) == len(set(cases)) == 2 * 2 * 12
    assert {(case.m, case.n) for case in cases} >= {(1000, 1001), (1024, 512), (16384, 131072)}
    assert {(case.model, case.mode, case.k) for case in cases} == {
        ("softmax", "eval", 0),
        ("batch_norm", "train", 0),
    }


@pytest.mark.parametrize("model", layers.LAYERS)
def test_truth_in_pieces_is_the_truth(model):
    problem = make_problem(model)
    whole = comparison.compute_truth(problem.plain, problem.x)
    pieces = list(layers.cut_truth(problem))
    dim = problem.model.independent
    assert len(pieces) > 3 and [piece.start for piece, _ in pieces[1:]] == [
        piece.stop for piece, _ in pieces[:-1]
    ]
    torch.testing.assert_close(torch.cat([truth.y for _, truth in pieces], dim), whole.y)
    for name in ("running_mean", "running_var") if whole.buffers else ():
        parts = torch.cat([truth.buffers[name] for _, truth in pieces])
        torch.testing.assert_close(parts, whole.buffers[name])


@pytest.mark.parametrize("model", layers.LAYERS)
def test_error_in_pieces_is_the_error(model):
    problem = make_problem(model)
    whole = comparison.compute_truth(problem.plain, problem.x)
    wrong = whole.y.float() * 1.001
    wrong[-1, -1] += 0.1
    errors = layers.measure_layer_errors(problem, lambda: wrong)
    assert errors["y"] == pytest.approx(comparison.compute_error(wrong, whole.y), rel=1e-9)
    # The batch has not been counted.
    assert errors.get("num_batches_tracked", 1.0) == 1.0


def test_layers_have_the_peers_of_the_models():
    """But those that a layer alone cannot have: there is no product."""
    others = {"ours_sm80", "ours_uncached", "cudnn", "folded", "bare_product"}
    assert set(memory_bound.LAYER_VARIANTS) == peers.VARIANTS.keys() - others


def compute_error(model, precision, variant):
    """The error of the result, of a problem of its own and not in pieces."""
    problem = make_problem(model, precision)
    with torch.no_grad():
        y = peers.VARIANTS[variant](problem.fork())()
        error = comparison.compute_error(y, comparison.compute_truth(problem.plain, problem.x).y)
    assert error > 0  # or a constant would do
    return error


@pytest.mark.parametrize("precision", memory_bound.PRECISIONS)
@pytest.mark.parametrize("model", layers.LAYERS)
def test_rows_of_a_layer_pass_the_form(model, precision):
    case = make_problem(model, precision).case
    rows = memory_bound.measure_layer("cpu", 2, ["ours", "eager"], case)
    assert [row["variant"] for row in rows] == ["ours", "eager", "copy"]
    passes = {"softmax": 2, "batch_norm": 3}[model]
    size = M * N * (4 if precision == "ieee" else 2)
    for row, moved in zip(rows, (passes * size, passes * size, 2 * size), strict=True):
        results.check_row(row)
        assert row["gbps"] == pytest.approx(moved / row["ms"] / 1e6, rel=1e-3)
    *errors, of_copy = (row["rel_err"] for row in rows)
    assert errors == pytest.approx(
        [compute_error(model, precision, name) for name in ("ours", "eager")], rel=1e-4
    )
    assert of_copy == 0
    assert memory_bound.format_table(rows).count("GB/s") == 3


WRONG = {
    "softmax": lambda plain, x: torch.softmax(x + x.new_tensor(0.01) * (x > 1), 1),
    # The unbiased variance where the biased one belongs.
    "batch_norm": lambda plain, x: plain(x) * x.new_tensor((M - 1) / M, dtype=torch.float64).sqrt(),
}


@pytest.mark.parametrize("precision", memory_bound.PRECISIONS)
@pytest.mark.parametrize("model", layers.LAYERS)
def test_wrong_layer_is_never_timed(model, precision, monkeypatch):
    problem = make_problem(model, precision)
    monkeypatch.setitem(
        peers.VARIANTS, "ours", lambda own: functools.partial(WRONG[model], own.plain, own.x)
    )
    with torch.no_grad(), pytest.raises(checking.WrongResult, match="ours: y"):
        memory_bound.prepare(problem, "ours")


@pytest.mark.parametrize("buffer", ["running_mean", "running_var", "num_batches_tracked"])
def test_wrong_running_statistics_are_never_timed(buffer, monkeypatch):
    def build_wrong(own):
        def run():
            y = own.plain(own.x)
            getattr(own.plain, buffer)[..., -1 if buffer != "num_batches_tracked" else None] = 0
            return y

        return run

    monkeypatch.setitem(peers.VARIANTS, "ours", build_wrong)
    with torch.no_grad(), pytest.raises(checking.WrongResult, match=f"ours: {buffer}"):
        memory_bound.prepare(make_problem("batch_norm"), "ours")


# ---- backward ----


def make_backward(model, precision="ieee"):
    return layers.BackwardCase(model, layers.LAYERS[model].mode, precision, M, N, 0)


def test_backward_cases_are_asked_for():
    both = memory_bound.list_layer_cases(list(layers.LAYERS), ["ieee"], memory_bound.PASSES)
    keys = [results.case_of(case.describe("memory_bound")) for case in both]
    assert len(set(keys)) == len(keys) == 2 * 2 * 12
    assert [isinstance(case, layers.BackwardCase) for case in both] == [False] * 24 + [True] * 24
    variants = list(memory_bound.LAYER_VARIANTS)
    assert memory_bound.list_layer_variants(variants, both[0]) == variants
    assert "max_autotune" not in memory_bound.list_layer_variants(variants, both[-1])


@pytest.mark.parametrize("precision", memory_bound.PRECISIONS)
@pytest.mark.parametrize("model", layers.LAYERS)
def test_rows_of_a_backward_pass_pass_the_form(model, precision, monkeypatch):
    compile = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda plain, mode, dynamic: compile(plain, backend="aot_eager")
    )
    variants = list(memory_bound.LAYER_VARIANTS)
    rows = memory_bound.measure_layer("cpu", 2, variants, make_backward(model, precision))
    assert [row["variant"] for row in rows] == ["ours", "eager", "compile", "copy"]
    passes = {"softmax": 3, "batch_norm": 5}[model]
    size = M * N * (4 if precision == "ieee" else 2)
    for row, moved in zip(rows, (*[passes * size] * 3, 2 * size), strict=True):
        results.check_row(row)
        assert row["grad"] is True
        assert row["gbps"] == pytest.approx(moved / row["ms"] / 1e6, rel=1e-3)
    assert all(row["rel_err"] > 0 for row in rows[:3])


@pytest.mark.parametrize("model", layers.LAYERS)
def test_error_of_gradients_in_pieces_is_the_error(model):
    problem = layers.build_layer_problem(make_backward(model), "cpu")
    x, grad = problem.x.requires_grad_(), layers.draw_gradient(problem)
    names = ["x", *dict(problem.plain.named_parameters())]
    asked = [x, *problem.plain.parameters()]
    truth = torch.autograd.grad(problem.plain(x), asked, grad)
    errors = layers.measure_backward_errors(problem, lambda: truth, grad)
    assert list(errors) == names and all(0 < error < 1e-6 for error in errors.values())
    for name in names:
        wrong = [
            value * (1.001 if key == name else 1) for key, value in zip(names, truth, strict=True)
        ]
        found = layers.measure_backward_errors(problem, lambda wrong=wrong: wrong, grad)
        assert {key for key, error in found.items() if error > 1e-4} == {name}


def test_wrong_gradient_is_never_timed(monkeypatch):
    wrong = lambda own: lambda: own.plain(own.x) * 1.001  # noqa: E731
    monkeypatch.setitem(peers.VARIANTS, "ours", wrong)
    with pytest.raises(checking.WrongResult, match="ours: the gradient of x"):
        memory_bound.measure_layer("cpu", 2, ["ours"], make_backward("softmax"))


def test_rounds_follow_the_size():
    def choose(elements):
        x = torch.empty(elements, device="meta")
        return memory_bound.choose_rounds(100, make_problem("softmax")._replace(x=x))

    assert choose(1000) == 100
    assert choose(2**31) == 16
    assert choose(2**33) == memory_bound.FEWEST_ROUNDS
