"""The benches' commands without a GPU: resuming, budgets, options, the machine."""

import argparse
import json
import types

import pytest
import torch

from bench import host, memory_bound, models, sweep, training
from bench.cases import cases
from bench.chains import __main__ as chains
from bench.end_to_end import __main__ as end_to_end
from bench.epilogues import __main__ as epilogues
from bench.measure import machine, options, results, timing
from bench.measure.run_cases import run_cases
from bench.tails import __main__ as tails
from cutlass_fused import comparison
from cutlass_fused.timing import Timing

# bench.models, with the measuring replaced


def describe(commit):
    return {key: commit if key == "commit" else "any" for key in results.META}


ONE_MODEL = ("--models", "12", "--modes", "eval")


@pytest.fixture
def run_models(tmp_path, monkeypatch):
    """run(*arguments) -> the cases measured. `run.crash_at` ends the run at that precision."""
    measured = []

    def measure(suite, case, variants, device, rounds):
        if case.precision == run.crash_at:
            raise KeyboardInterrupt
        measured.append(case.precision)
        times = Timing(0.3, 0.2, 0.4)
        part = case.describe(suite)
        return [timing.make_row(part, variant, times, 1e-3) for variant in variants]

    def run(*arguments):
        measured.clear()
        models.main(["--out", str(tmp_path), *ONE_MODEL, *arguments])
        return list(measured)

    run.crash_at = None
    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    monkeypatch.setattr(machine, "describe_machine", describe)
    monkeypatch.setattr(models, "measure_case", measure)
    return run


def test_finished_cases_are_skipped(run_models, tmp_path):
    same = ["--commit", "abc"]
    assert run_models(*same, "--precisions", "bf16,tf32") == ["tf32", "bf16"]
    assert run_models(*same) == ["ieee", "fp16"]
    assert run_models(*same) == []
    assert run_models(*same, "--again", "--precisions", "fp16") == ["fp16"]
    rows = json.loads((tmp_path / "models.json").read_text())["rows"]
    assert [row["precision"] for row in rows if row["variant"] == "ours"] == list(
        comparison.PRECISIONS
    )


def test_interrupted_run_goes_on_where_it_stopped(run_models):
    run_models.crash_at = "bf16"
    with pytest.raises(KeyboardInterrupt):
        run_models("--commit", "abc")
    run_models.crash_at = None
    assert run_models("--commit", "abc") == ["bf16", "fp16"]


def test_case_with_a_missing_variant_is_measured_whole(run_models, tmp_path):
    arguments = ["--commit", "abc", "--precisions", "ieee", "--variants"]
    assert run_models(*arguments, "ours,eager") == ["ieee"]
    assert run_models(*arguments, "eager") == []
    assert run_models(*arguments, "ours,eager,bare_product") == ["ieee"]
    rows = json.loads((tmp_path / "models.json").read_text())["rows"]
    assert [row["variant"] for row in rows] == ["ours", "eager", "bare_product"]


def test_another_commit_needs_again(run_models):
    run_models("--commit", "abc")
    with pytest.raises(SystemExit, match="commit abc.*--again"):
        run_models("--commit", "def")
    assert run_models("--commit", "def", "--again") == list(comparison.PRECISIONS)


def test_words_are_parsed():
    assert options.parse_words(["a", "b", "c"], "c,a,c") == ["a", "c"]
    for text in ("d", "", "a,,b"):
        with pytest.raises(argparse.ArgumentTypeError, match="among a, b, c"):
            options.parse_words(["a", "b", "c"], text)


def test_default_of_the_case_is_told(capsys):
    parser = options.build_parser("bench", "", 1)
    options.add_words(parser, "--few", ["a", "b"], (), "as the case has them")
    options.add_words(parser, "--all", ["a", "b"])
    assert parser.parse_args(["--out", "."]).few == []
    assert "default: as the case has them" in parser.format_help()
    assert "default: a,b" in parser.format_help()


# What is run, in which order, and how far


class Clock:
    """Replaces time.perf_counter: it stands still but where a case is measured."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def run_all(tmp_path, monkeypatch):
    """run(budget, missing=()) -> (the precisions measured, how many cases are left).

    A case takes 10 s; the variant "eager" of the precisions in `missing` fails, that of the
    precisions in `disturbed` has a median of twice the least.
    """
    clock, all_cases = Clock(), cases.list_cases(["12"], comparison.PRECISIONS, ["eval"])
    monkeypatch.setattr("bench.measure.run_cases.time", types.SimpleNamespace(perf_counter=clock))

    def run(budget=None, missing=(), disturbed=(), unsteady=False):
        measured = []

        def measure(case):
            clock.seconds += 10
            measured.append(case.precision)
            variants = ["ours"] if case.precision in missing else ["ours", "eager"]
            part, steady = case.describe("models"), Timing(0.3, 0.25, 0.4)
            times = {"eager": Timing(0.3, 0.15, 0.4)} if case.precision in disturbed else {}
            return [timing.make_row(part, name, times.get(name, steady), 0.0) for name in variants]

        left = run_cases(
            results.ResultFile(tmp_path, "models", describe("abc")),
            argparse.Namespace(again=False, unsteady=unsteady, budget=budget),
            all_cases,
            lambda case: ["ours", "eager"],
            measure,
        )
        return measured, left

    return run


def test_budget_ends_a_run_between_two_cases(run_all, capsys):
    # The third case would end at 30 s.
    assert run_all(budget=29) == (["ieee", "tf32"], 2)
    assert "stopped: 2 cases are left" in capsys.readouterr().out
    assert run_all(budget=29) == (["bf16", "fp16"], 0)
    assert run_all(budget=29) == ([], 0)
    assert "4 of 4 cases are measured already" in capsys.readouterr().out


def test_budget_below_one_case_still_gets_on(run_all):
    assert run_all(budget=5) == (["ieee"], 3)
    assert run_all(budget=5) == (["tf32"], 2)


def test_case_of_a_failed_peer_does_not_hold_up_the_others(run_all):
    assert run_all(budget=5, missing=["ieee"]) == (["ieee"], 3)
    assert run_all(missing=["ieee"]) == (["tf32", "bf16", "fp16", "ieee"], 0)
    assert run_all() == (["ieee"], 0)


def test_unsteady_cases_are_told_and_can_be_measured_again(run_all, capsys):
    assert run_all(disturbed=["tf32", "fp16"]) == (list(comparison.PRECISIONS), 0)
    assert capsys.readouterr().out.count("unsteady: eager: a median over 1.5 times") == 2
    assert run_all() == ([], 0)
    assert run_all(unsteady=True, disturbed=["fp16"]) == (["tf32", "fp16"], 0)
    assert run_all(unsteady=True) == (["fp16"], 0)
    assert run_all(unsteady=True) == ([], 0)


def test_unsteady_cases_do_not_keep_back_what_was_never_measured(run_all):
    assert run_all(budget=15, disturbed=["ieee"]) == (["ieee"], 3)
    assert run_all(unsteady=True) == (["tf32", "bf16", "fp16", "ieee"], 0)


SUITES = (models, host, memory_bound, sweep, training, epilogues, end_to_end, chains, tails)
MAINS = [suite.main for suite in SUITES]


@pytest.mark.parametrize("main", MAINS)
@pytest.mark.parametrize("option", ["--again", "--unsteady"])
def test_budget_needs_a_run_that_goes_on(main, option, tmp_path, capsys):
    """With either option the same command would begin with the same cases for ever."""
    with pytest.raises(SystemExit) as exit:
        main(["--out", str(tmp_path), "--budget", "500", option])
    assert exit.value.code == 2
    assert f"argument {option}: not allowed with argument --budget" in capsys.readouterr().err


def test_measured_cases_of_the_other_suites_are_found_again(tmp_path, monkeypatch):
    """Their commands measure all cases once, and none the second time."""
    measured = []

    def make_rows(suite, case, variants, **more):
        measured.append(case)
        part = case.describe(suite)
        return [timing.make_row(part, name, Timing(3, 2, 4), 0.0, **more) for name in variants]

    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    monkeypatch.setattr(machine, "describe_machine", describe)
    monkeypatch.setattr(
        host,
        "measure_host",
        lambda device, rounds, case: make_rows(
            "host", case, [call.variant for call in host.CALLS if call.variant]
        ),
    )
    monkeypatch.setattr(
        memory_bound,
        "measure_layer",
        lambda device, rounds, variants, case: make_rows(
            "memory_bound", case, [*variants, memory_bound.COPY], gbps=1000.0
        ),
    )
    # Model 12 once, 33 and 84 in two modes; two layers, two precisions, 12 shapes.
    for module, expected in ((host, 4 * 5), (memory_bound, 2 * 2 * 12)):
        for count in (expected, 0):
            measured.clear()
            module.main(["--out", str(tmp_path), "--commit", "abc"])
            assert len(measured) == len(set(measured)) == count


# The machine


@pytest.mark.parametrize(
    "name, short",
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", "t4"),
    ],
)
def test_gpu_names_are_shortened(name, short):
    assert machine.shorten_gpu_name(name) == short


def test_without_gpu_or_commit_the_reason_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for main in MAINS:
        with pytest.raises(SystemExit, match="need a CUDA GPU"):
            main(["--out", str(tmp_path)])
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SystemExit, match="--commit"):
        machine.find_commit()
