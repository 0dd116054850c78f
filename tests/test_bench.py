"""The benches without a GPU: resuming, the cases and their check, the timers."""

import argparse
import json
import sys
import time

import pytest
import torch

from bench import cases, cudnn_graph, host, machine, models, options, peers, results, timing
from cutlass_fused import demo, nn
from cutlass_fused.timing import Timing, shuffle_rounds, summarize, time_in_turns

# bench.models, with the measuring replaced


def describe(commit):
    return {key: commit if key == "commit" else "any" for key in results.META}


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
        models.main(["--out", str(tmp_path), *arguments])
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
    assert [row["precision"] for row in rows if row["variant"] == "ours"] == list(demo.PRECISIONS)


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
    assert run_models("--commit", "def", "--again") == list(demo.PRECISIONS)


def test_words_are_parsed():
    assert options.parse_words(["a", "b", "c"], "c,a,c") == ["a", "c"]
    for text in ("d", "", "a,,b"):
        with pytest.raises(argparse.ArgumentTypeError, match="among a, b, c"):
            options.parse_words(["a", "b", "c"], text)


# The cases and their check


def test_table_of_cases():
    assert cases.list_cases(["12"], ["ieee", "fp16"]) == [
        ("12", "eval", "ieee", 1024, 8192, 8192),
        ("12", "eval", "fp16", 1024, 8192, 8192),
    ]
    assert len(cases.list_cases(cases.MODELS, demo.PRECISIONS)) == 4


def make_problem(precision, m=16, n=48, k=64):
    case = cases.list_cases(["12"], [precision])[0]
    return cases.build_problem(case._replace(m=m, n=n, k=k), "cpu")


@pytest.mark.parametrize("precision", demo.PRECISIONS)
def test_problems_are_those_of_the_model(precision):
    """The same numbers in every precision: torch.rand inputs, parameters as torch.nn draws them."""
    problem = make_problem(precision)
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48)
    x = torch.rand(16, 64)
    dtype = demo.PRECISIONS[precision].dtype
    assert torch.equal(problem.plain.gemm.weight, linear.weight.to(dtype))
    assert torch.equal(problem.plain.gemm.bias, linear.bias.to(dtype))
    assert torch.equal(problem.x, x.to(dtype))
    assert not problem.plain.training


def test_building_a_problem_keeps_the_seed():
    state = torch.get_rng_state()
    make_problem("bf16")
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("precision", demo.PRECISIONS)
def test_rows_of_a_case_pass_the_form(precision):
    case = make_problem(precision).case
    variants = ["ours", "eager", "bare_product"]
    rows = timing.measure_case("models", case, variants, "cpu", rounds=3)
    assert [row["variant"] for row in rows] == variants
    for row in rows:
        results.check_row(row)
        assert (row["M"], row["N"], row["K"]) == (16, 48, 64)
    assert models.format_table(rows).count("\n") == 3


WRONG = {
    "slope": lambda problem: nn.LinearScaleLeakyReLU.from_eager(problem.plain.gemm, 2.0, 0.0),
    "multiplier": lambda problem: nn.LinearScaleLeakyReLU.from_eager(problem.plain.gemm, 2.1, 0.1),
    "bias": lambda problem: (
        lambda x: torch.nn.functional.leaky_relu(x @ problem.plain.gemm.weight.T * 2.0, 0.1)
    ),
    "nan": lambda problem: lambda x: problem.plain(x) * float("nan"),
}


@pytest.mark.parametrize("precision", demo.PRECISIONS)
@pytest.mark.parametrize("fault", WRONG)
def test_wrong_result_is_never_timed(fault, precision, monkeypatch, capsys):
    problem = make_problem(precision)

    def build_wrong(problem):
        wrong = WRONG[fault](problem)
        return lambda: wrong(problem.x)

    monkeypatch.setitem(peers.VARIANTS, "ours", build_wrong)
    monkeypatch.setitem(peers.VARIANTS, "compile", build_wrong)
    with torch.no_grad():
        with pytest.raises(peers.WrongResult, match="ours has a relative error"):
            peers.prepare_variants(problem, ["ours"])
        runs, errors = peers.prepare_variants(problem, ["compile", "eager"])
    assert list(runs) == list(errors) == ["eager"]
    assert "compile: skipped: WrongResult" in capsys.readouterr().out


def test_tf32_does_not_pass_as_ieee():
    assert peers.LARGEST_ERRORS["ieee"] < 1e-4 < peers.LARGEST_ERRORS["tf32"]


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


def test_cudnn_is_skipped_with_the_reason(monkeypatch):
    ieee, bf16 = cases.list_cases(["12"], ["ieee", "bf16"])
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert "nvidia-cudnn-frontend" in cudnn_graph.find_obstacle()
    assert "nvidia-cudnn-frontend" in peers.find_obstacle("cudnn", bf16)
    monkeypatch.setattr(cudnn_graph, "find_obstacle", lambda: None)
    assert peers.find_obstacle("cudnn", bf16) is None
    assert "TF32" in peers.find_obstacle("cudnn", ieee)
    monkeypatch.setitem(cases.MODELS, "12", cases.MODELS["12"]._replace(build_cudnn=None))
    assert "no graph of model 12" in peers.find_obstacle("cudnn", bf16)


# Timing


def test_every_round_runs_each_variant_once_in_changing_order():
    ran = []
    variants = {name: lambda name=name: ran.append(name) for name in "abc"}
    timings = time_in_turns(variants, "cpu", rounds=20, warm_up_rounds=5)
    rounds = [tuple(ran[start : start + 3]) for start in range(0, len(ran), 3)]
    assert len(rounds) == 25 and all(set(order) == set("abc") for order in rounds)
    assert len(set(rounds)) > 3
    assert rounds[5:] == [tuple(order) for order in shuffle_rounds("abc", 20)]
    assert list(timings) == list("abc")


def test_summary_is_median_least_most():
    assert summarize([5.0, 1.0, 2.0]) == (2.0, 1.0, 5.0)


def test_times_are_milliseconds_per_call():
    variants = {"short": lambda: None, "long": lambda: time.sleep(2e-3)}
    for timings in (
        time_in_turns(variants, "cpu", rounds=3, warm_up_rounds=0),
        timing.time_host(variants, "cpu", rounds=3, calls=4),
    ):
        # A busy machine can only make it longer.
        assert 2 <= timings["long"].least
        assert timings["short"].least < 1


def test_calls_of_the_host_bench_compute_what_they_say():
    problem = make_problem("ieee", 8, 8, 8)
    with torch.no_grad():
        calls = host.build_calls(problem)
        labels = [call.label for call in calls]
        for call in calls:
            if call.variant != "compile":  # compiling takes long
                peers.measure_error(call.label, call.run, call.truth, "ieee")
    assert len(set(labels)) == len(labels)
    recorded = [call.variant for call in calls if call.variant is not None]
    assert recorded == ["ours", "eager", "compile", "bare_product"]
    timings = {label: Timing(1.0, 0.5, 2.0) for label in labels}
    assert host.format_table(calls, timings).count("1000.00") == len(calls)


def test_variants_and_precisions_have_names_in_the_form():
    assert set(peers.VARIANTS) <= set(results.VARIANTS)
    assert set(cases.MODELS) <= set(results.MODELS)
    assert tuple(demo.PRECISIONS) == results.PRECISIONS
    assert set(peers.LARGEST_ERRORS) == set(results.PRECISIONS)


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
    for main in (models.main, host.main):
        with pytest.raises(SystemExit, match="need a CUDA GPU"):
            main(["--out", str(tmp_path)])
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SystemExit, match="--commit"):
        machine.find_commit()
