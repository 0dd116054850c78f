"""bench.chains without a GPU: its cases, rows of every variant, wrong results, the table."""

import pytest
import torch
from documents import TEXTS
from fake_graphs import FakeGraphs
from result_rows import make_row

from bench import plot
from bench.chains import __main__ as command
from bench.chains import cases
from bench.measure import results
from bench.measure.checking import WrongResult
from bench.plotting.end_to_end import chains
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


# Made up.
WALL_MS = {"eager": 2.0, "compile": 9.0, "compile_graphs": 0.9}
WALL_MS |= {"ours": 1.0, "ours_replays": 0.5, "ours_graphs": 0.3}


def make_rows(precision, width, m, **changes):
    """Of all variants. By the GPU's time all are alike."""
    size = {"suite": "chains", "model": "mlp", "M": m, "N": width, "K": width}
    return [
        make_row(precision=precision, variant=name, ms=0.1, wall_ms=wall, **size)
        for name, wall in (WALL_MS | changes).items()
    ]


def test_table():
    """A line for each width and number of rows in their order, whatever that of the file is."""
    rows = make_rows("ieee", 128, 16, eager=0.5) + make_rows("ieee", 64, 256)
    rows += make_rows("bf16", 64, 256, ours_graphs=0.045) + make_rows("ieee", 64, 1)
    text, titles, lines = chains.tabulate_chains(rows)
    assert text == chains.CHAINS and titles == ["width", "rows", 'fp32 `"ieee"`', "bf16"]
    plain = "**2.00 / 4.00 / 3.00** (1.00 / 0.500 / 0.300)"
    assert lines == [
        ["64", "1", plain, ""],
        ["64", "256", plain, "**2.00 / 4.00 / 20.00** (1.00 / 0.500 / 0.0450)"],
        ["128", "16", "**0.50 / 1.00 / 3.00** (1.00 / 0.500 / 0.300)", ""],
    ]


def list_ratios(pair, precisions, clock="wall_ms"):
    """Of the committed file: PyTorch's time over ours."""
    peer, own = pair
    found = chains.collect(plot.read_rows(None, "chains")[1])
    return [
        variants[peer][clock] / variants[own][clock]
        for (precision, *_), variants in found.items()
        if precision in precisions
    ]


def test_what_the_document_says_of_the_table():
    section = TEXTS["bench/end_to_end/README.md"].split("## Chains of small layers")[1]
    text = " ".join(section.split("<!-- end -->")[1].split())
    every = ["ieee", "tf32", "bf16"]

    def say(pair, *precisions):
        ratios = list_ratios(pair, precisions)
        assert len(ratios) == 12 * len(precisions)
        return f"{min(ratios):.2f} to {max(ratios):.2f}"

    eager, replays, graphs = chains.PAIRS
    assert f'under `"ieee"` have {say(eager, "ieee")} of the speed of PyTorch\'s two ops' in text
    assert f'under `"tf32"` {say(eager, "tf32")}, and in bf16 {say(eager, "bf16")}.' in text
    ratios = list_ratios(eager, every)
    slower = sum(ratio < 1 for ratio in ratios)
    assert f"Of these {len(ratios)} chains {slower} are slower" in text
    assert sum(ratio < 1 for ratio in list_ratios(eager, ["tf32"])) > slower / 2  # "most"
    assert f"PyTorch's eager mode: {say(replays, *every)} times." in text
    assert f"copies x into them: {say(graphs, *every)} times" in text
    assert min(list_ratios(replays, every) + list_ratios(graphs, every)) > 1  # "every chain"
    least = min(list_ratios(graphs, every, "ms"))
    assert f"by the GPU's time alone {least:.2f} times at least" in text
