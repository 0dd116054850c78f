"""bench.chains without a GPU: its cases, rows of every variant, wrong results."""

import pytest
import torch
from fake_graphs import FakeGraphs

from bench.chains import __main__ as command
from bench.chains import cases
from bench.measure import results
from bench.measure.checking import WrongResult
from bench.steps import measure as measure_steps


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    monkeypatch.setattr(measure_steps, "Graphs", FakeGraphs)


def test_every_width_in_every_precision():
    listed = cases.list_cases()
    assert len(listed) == len(set(listed)) == 3 * 4 * 3
    keys = {results.case_of(case.describe("chains")) for case in listed}
    assert len(keys) == len(listed) and set(cases.VARIANTS) <= set(results.VARIANTS)
    some = cases.list_cases(["bf16"], [64, 512], [1])
    assert [(case.precision, case.width, case.m) for case in some] == [
        ("bf16", 64, 1),
        ("bf16", 512, 1),
    ]


@pytest.mark.parametrize("precision, most", [("ieee", 1e-5), ("tf32", 1e-5), ("bf16", 5e-2)])
def test_rows(precision, most):
    failures, names = {}, ["ours", "ours_replays", "ours_graphs", "eager"]
    rows = command.measure("cpu", 1, names, failures, cases.ChainCase(precision, 5, 64))
    assert [row["variant"] for row in rows] == names and not failures
    for row in rows:
        results.check_row(row)
        assert (row["M"], row["N"], row["K"], row["mode"]) == (5, 64, 64, "eval")
        assert row["wall_ms"] > 0 and 0 < row["rel_err"] < most
    assert command.format_table(rows).count("\n") == len(names)


def test_compiled_variants_compute_the_same():
    names = ["eager", "compile", "compile_graphs"]
    rows = command.measure("cpu", 1, names, {}, cases.ChainCase("ieee", 5, 64))
    assert [row["variant"] for row in rows] == names
    assert all(row["rel_err"] < 1e-5 for row in rows)


@pytest.mark.parametrize("variant", ["ours", "ours_replays", "ours_graphs"])
def test_wrong_results_of_ours_are_never_timed(variant, monkeypatch):
    def fuse_wrongly(plain, precision, graphs=False):
        plain[1] = torch.nn.LeakyReLU(0.01)
        return plain

    monkeypatch.setattr(cases, "fuse", fuse_wrongly)
    case, failures = cases.ChainCase("ieee", 5, 64), {}
    rows = command.measure("cpu", 1, ["eager", variant], failures, case)
    assert [row["variant"] for row in rows] == ["eager"]
    assert failures == {(case, variant): WrongResult}
