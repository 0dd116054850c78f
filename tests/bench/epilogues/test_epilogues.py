"""bench.epilogues without a GPU: its cases, the check, rows, the command."""

import json

import pytest
import torch

from bench.epilogues import __main__ as command
from bench.epilogues import cases, link_ahead, measure, programs, variants
from bench.epilogues.cases import EpilogueCase, list_cases, list_variants
from bench.epilogues.programs import KINDS, PROGRAMS
from bench.measure import checking, machine, results
from bench.measure.timing import make_row
from cutlass_fused.timing import Timing

# So small that a call takes no time.
SMALL = (24, 20, 16)
ALL_PRECISIONS = ("ieee", "tf32", "bf16", "fp16")


def make_case(program, precision="ieee", part="large"):
    return EpilogueCase(part, program, precision, *SMALL)


# ---- the cases ----


def test_cases_by_part():
    listed = list_cases()
    assert len(listed) == len(set(listed))
    counts = {part: len(list_cases([part])) for part in cases.PARTS}
    few = {"large": 18, "fp32": 9, "first": 5, "rows": 16, "others": 11}
    assert counts == {**few, "users": 36, "steps": 12}
    # What matters most is first.
    assert listed == [case for part in cases.PARTS for case in list_cases([part])]
    assert {(c.m, c.n, c.k) for c in listed if c.part == "large"} == {cases.LARGE, cases.SHORT}
    assert {c.program for c in listed if c.part == "steps"} == {"gelu", "gate", "residual"}
    # No case's rows take the place of another's.
    assert len({results.case_of(case.describe("epilogues")) for case in listed}) == len(listed)


def test_words_choose_cases():
    listed = list_cases(["users", "fp32"], ["gate"], ["ieee"])
    assert {case.part for case in listed} == {"users", "fp32"} and len(listed) == 6 + 1
    assert {(case.program, case.precision) for case in listed} == {("gate", "ieee")}


def test_names_are_those_of_the_form():
    assert PROGRAMS.keys() == set(results.EXTRA_MODELS["epilogues"])
    assert set(cases.VARIANTS) <= set(results.VARIANTS)
    for case in list_cases():
        assert set(list_variants(case)) <= set(cases.VARIANTS)


def test_variants_of_a_case():
    large = EpilogueCase("large", "gate", "bf16", *cases.LARGE)
    assert list_variants(large) == [
        *("ours", "identity", "eager", "compile", "max_autotune", "bare_product", "copy")
    ]
    assert "compiled" in list_variants(large._replace(program="scale_leaky_relu"))
    assert not {"identity", "copy"} & set(list_variants(large._replace(program="identity")))
    assert not {"max_autotune", "copy"} & set(list_variants(large._replace(part="users")))
    assert list_variants(large._replace(part="first")) == ["first_call", "cached_call"]


def test_one_program_has_operands_of_three_kinds_and_five_operations():
    assert [KINDS[name] for name in PROGRAMS["affine"].operands] == ["column", "row", "scalar"]
    assert PROGRAMS["affine"].has_bias and not PROGRAMS["affine"].transcendental
    assert {name for name, each in PROGRAMS.items() if each.has_matrix} == {"residual", "gate"}
    assert not PROGRAMS["identity"].has_bias


# ---- a case is measured ----


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    """Nor does it compile for one: what torch.compile hands on runs as it is, all of it."""
    compile = torch.compile

    def compile_less(target, mode=None, **options):
        return compile(target, backend="aot_eager", fullgraph=True, **options)

    monkeypatch.setattr(torch, "compile", compile_less)
    for module in (variants, measure):
        monkeypatch.setattr(module, "COPY_BYTES", 1024)


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_pass_the_form(name):
    for precision in ALL_PRECISIONS:
        case, failures = make_case(name, precision), {}
        rows = measure.measure_calls("cpu", 2, failures, case)
        assert failures == {}
        assert [row["variant"] for row in rows] == list_variants(case)
        for row in rows:
            results.check_row(row)
            most = {"ieee": 1e-6, "tf32": 1e-6, "bf16": 1e-2, "fp16": 1e-3}[precision]
            assert row["rel_err"] < most and ("gbps" in row) == (row["variant"] == "copy")
            key = results.case_of(case.describe("epilogues"))
            assert results.case_of(row) == key
    assert command.format_table(rows).count("\n") == len(rows)


@pytest.mark.parametrize("name", cases.OF_USERS)
def test_rows_of_steps(name):
    case, failures = make_case(name, part="steps"), {}
    rows = measure.measure_step("cpu", 2, failures, case)
    assert failures == {}
    assert [row["variant"] for row in rows] == ["ours", "eager", "compile", "bare_products"]
    for row in rows:
        results.check_row(row)
        assert row["grad"] and row["weight"] == "new" and row["mode"] == "train"
        assert row["wall_ms"] > 0 and 0 < row["rel_err"] < 1e-5
        assert results.case_of(row) == results.case_of(case.describe("epilogues"))


def test_gradients_are_of_all_that_is_given():
    problem = measure.build_step_problem(make_case("gate", part="steps"), "cpu")
    names = {"x", "gemm.weight", "gemm.bias", "operands.other"}
    assert problem.list_asked().keys() == names


def test_processes_link_and_tell_what_fails(capsys, monkeypatch):
    monkeypatch.setattr(link_ahead, "MOST_PROCESSES", 2)
    if torch.cuda.is_available():
        pytest.skip("nothing would fail")
    with link_ahead.Linker() as linker:
        linker.link_all([make_case("gate")])  # by the call that is measured
        assert linker.pool is None and capsys.readouterr().out == ""
        if linker.count > 1:
            linker.link_all([make_case("gate"), make_case("gelu")])
            told = capsys.readouterr().out.splitlines()
            names = ("gate", "gelu")
            shape = "M=24 N=20 K=16"
            start = "  not linked ahead: large:"
            assert told == [f"{start} {name}, ieee, {shape}: RuntimeError" for name in names]


@pytest.mark.parametrize("part", ["large", "steps"])
def test_what_is_linked_ahead_is_what_is_measured(part):
    link_ahead.call_ours(make_case("gate", part=part), "cpu")
    assert link_ahead.link(make_case("gate", part=part)) is not None  # there is no GPU


def spoil_ours(monkeypatch, function):
    def forward(self, x):
        return function(self.plain(x))

    monkeypatch.setattr(programs.Ours, "forward", forward)


def test_wrong_results_are_never_timed_and_others_are(monkeypatch, capsys):
    spoil_ours(monkeypatch, lambda y: y * 1.01)
    for part, measure_part in (("large", measure.measure_calls), ("steps", measure.measure_step)):
        failures = {}
        rows = measure_part("cpu", 2, failures, make_case("gelu", part=part))
        assert failures == {"ours": checking.WrongResult}
        assert "ours" not in [row["variant"] for row in rows] and len(rows) >= 3
    assert "ours: skipped: WrongResult" in capsys.readouterr().out


@pytest.mark.parametrize(
    "function, failure",
    [
        (lambda y: (y[0], y[1] * 1.01), checking.WrongResult),
        (lambda y: (y[0], y[1] * float("nan")), checking.WrongResult),
        (lambda y: y[0], TypeError),
    ],
)
def test_every_result_is_checked(function, failure, monkeypatch):
    spoil_ours(monkeypatch, function)
    failures = {}
    measure.measure_calls("cpu", 2, failures, make_case("two_outputs"))
    assert failures == {"ours": failure}


# ---- the command ----


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*arguments) -> (what it returns, the cases that were measured)."""
    measured, prepared = [], []

    def measure_fake(device, rounds, failures, case):
        measured.append(case)
        if case.program == run.wrong:
            failures["ours"] = checking.WrongResult
        names = [name for name in list_variants(case) if name not in failures]
        times = Timing(0.3, 0.25, 0.4)
        return [make_row(case.describe("epilogues"), name, times, 0.0) for name in names]

    def run(*arguments):
        measured.clear()
        prepared.clear()
        code = command.main(["--out", str(tmp_path), "--commit", "abc", *arguments])
        return code, list(measured)

    call = {"ms": 4e3, "wall_ms": 5e3, "rel_err": 1e-3, "kernels": 1}
    cached = [{**call, "ms": ms, "kernels": 0} for ms in (9.0, 8.0, 12.0)]
    run.first = {"first_call": [call], "cached_call": cached}
    run.wrong, run.prepared = None, prepared

    def measure_all(cases):
        prepared.append(len(cases))
        return {case: run.first for case in cases}

    meta = dict.fromkeys(results.META, "any") | {"commit": "abc"}
    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    monkeypatch.setattr(machine, "describe_machine", lambda commit: meta)
    monkeypatch.setattr(command, "measure_calls", measure_fake)
    monkeypatch.setattr(command, "measure_step", measure_fake)
    link_all = lambda self, cases: prepared.append(len(cases))  # noqa: E731
    monkeypatch.setattr(link_ahead.Linker, "link_all", link_all)
    monkeypatch.setattr(command, "measure_all", measure_all)
    return run


def test_measured_cases_are_found_again(run, tmp_path):
    code, measured = run()
    assert code == 0 and len(measured) == len(list_cases()) - 5
    # Each part is prepared once.
    assert run.prepared == [18, 9, 5, 36, 16, 12, 11]
    assert run() == (0, []) and run.prepared == []
    rows = json.loads((tmp_path / "epilogues.json").read_text())["rows"]
    (first, *others) = [row for row in rows if row["model"] == "gate" and row.get("fresh")]
    assert (first["variant"], first["ms"], first["kernels"]) == ("first_call", 4e3, 1)
    # The median of three processes.
    assert [(row["variant"], row["ms"], row["ms_min"], row["kernels"]) for row in others] == [
        ("cached_call", 9.0, 8.0, 0)
    ]


def test_only_what_is_missing_is_prepared(run):
    run("--parts", "fp32", "--programs", "gelu,gate")
    assert run.prepared == [2]
    run("--parts", "fp32")
    assert run.prepared == [7]


def test_wrong_results_of_ours_are_told_in_the_end(run, capsys):
    run.wrong = "gelu"
    code, _ = run("--parts", "fp32")
    assert code == 1
    assert "fp32: gelu, ieee, M=1024 N=8192 K=8192: ours: WrongResult" in capsys.readouterr().out


def test_a_process_that_failed_is_told_and_the_run_goes_on(run, capsys):
    run.first = RuntimeError("no memory")
    code, measured = run("--parts", "first,others")
    assert code == 0 and len(measured) == 11
    assert "the case is left out: RuntimeError: no memory" in capsys.readouterr().out
