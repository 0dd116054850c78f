"""bench.sweep without a GPU: its cases and variants, its rows, the rows that are checked."""

import json

import pytest
import torch

from bench import sweep
from bench.cases import cases, cudnn_graph, peers, sweep_cases
from bench.measure import checking, machine, results, timing
from cutlass_fused.timing import Timing

# ---- the cases ----


def list_all():
    return sweep_cases.list_sweep_cases(sweep_cases.MODELS, sweep_cases.PRECISIONS)


def test_every_shape_once_and_two_dozen_of_them_in_other_ways():
    listed = list_all()
    assert len(listed) == len(set(listed)) == 13 * 10 + 24 + 24
    by_kind = {}
    for case in listed:
        assert case.mode == "eval"
        by_kind.setdefault((case.model, case.precision), set()).add((case.m, case.n, case.k))
    everywhere = by_kind.pop(("12", "bf16"))
    assert {m for m, _, _ in everywhere} >= {1, 64, 16384} and len(everywhere) == 130
    assert by_kind.keys() == {("12", "fp16"), ("linear", "bf16")}
    for spread in by_kind.values():
        assert len(spread) == 24 and spread < everywhere
        # Each weight with few rows and with many.
        for pair in sweep_cases.FEATURES:
            sizes = [m for m, *other in spread if tuple(other) == pair]
            assert min(sizes) <= 64 and max(sizes) >= 1024


def test_sizes_of_the_callers():
    sizes = [(20000, 7, 9), (3, 8192, 8192), (5, 7, 9)]
    cases = sweep_cases.list_sweep_cases(["12"], ["bf16"], sizes)
    assert [(case.m, case.n, case.k) for case in cases] == [sizes[0], sizes[2], sizes[1]]
    assert all(
        "max_autotune" in sweep_cases.list_planned(sweep_cases.VARIANTS, case) for case in cases
    )
    assert sweep.build_sweep_problem(cases[0], "cpu").x.shape == (20000, 9)


def test_two_weights_are_unaligned():
    """N odd: rows of y only; K odd: rows of x and weight only."""
    odd = {pair for pair in sweep_cases.FEATURES if pair[0] % 8 or pair[1] % 8}
    assert [(n % 8 != 0, k % 8 != 0) for n, k in sorted(odd)] == [(True, False), (False, True)]
    assert (1000, 2048) in sweep_cases.FEATURES and 1000 % 128


def test_words_choose_cases():
    for models, precisions, count in (
        (["12"], ["bf16"], 130),
        (["linear"], ["bf16", "fp16"], 24),
        (["12", "linear"], ["fp16"], 24),
    ):
        assert len(sweep_cases.list_sweep_cases(models, precisions)) == count


def test_cases_with_one_weight_are_neighbours():
    weights = [(case.model, case.precision, case.n, case.k) for case in list_all()]
    changes = sum(one != other for one, other in zip(weights, weights[1:], strict=False))
    assert changes + 1 == len(set(weights)) == 3 * 10


def test_max_autotune_runs_on_the_spread_of_one_model_and_precision():
    found = {}
    for case in list_all():
        names = sweep_cases.list_planned(sweep_cases.VARIANTS, case)
        found.setdefault((case.model, case.precision), []).append("max_autotune" in names)
        assert {"ours", "eager", "compile", "cudnn", "bare_product"} <= set(names)
    assert {key: sum(flags) for key, flags in found.items()} == {
        ("12", "bf16"): 24,
        ("12", "fp16"): 0,
        ("linear", "bf16"): 0,
    }


def test_what_cannot_be_had_is_no_variant(monkeypatch):
    case = list_all()[0]
    monkeypatch.setattr(cudnn_graph, "find_obstacle", lambda: "no package")
    assert "cudnn" not in sweep_cases.list_sweep_variants(sweep_cases.VARIANTS, case)
    monkeypatch.setattr(cudnn_graph, "find_obstacle", lambda: None)
    for case in list_all():
        assert "cudnn" in sweep_cases.list_sweep_variants(sweep_cases.VARIANTS, case)


# ---- the problems ----

SMALL = {"n": 48, "k": 64}


def make_case(model="12", precision="bf16", m=16):
    return sweep_cases.SweepCase(model, "eval", precision, m, **SMALL)


@pytest.fixture(autouse=True)
def forget_problem():
    yield
    sweep.build_largest.cache_clear()


@pytest.mark.parametrize("model", sweep_cases.MODELS)
def test_cases_of_one_weight_share_it_and_their_first_rows(model):
    small, large = (sweep.build_sweep_problem(make_case(model, m=m), "cpu") for m in (16, 40))
    assert (small.case.m, len(small.x), len(large.x)) == (16, 16, 40)
    assert small.plain.gemm is large.plain.gemm and small.x.data_ptr() == large.x.data_ptr()
    assert small.x.dtype == small.plain.gemm.weight.dtype == torch.bfloat16
    other = sweep.build_sweep_problem(make_case(model, "fp16"), "cpu")
    assert other.x.dtype == torch.float16


def test_problem_is_that_of_the_model():
    """torch.rand inputs, parameters as torch.nn draws them."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48)
    x = torch.rand(max(sweep_cases.SIZES), 64)
    problem = sweep.build_sweep_problem(make_case("linear"), "cpu")
    assert torch.equal(problem.plain.gemm.weight, linear.weight.bfloat16())
    assert torch.equal(problem.plain.gemm.bias, linear.bias.bfloat16())
    assert torch.equal(problem.x, x[:16].bfloat16())


def test_linear_is_a_product_with_bias_in_all_variants(monkeypatch):
    def run(define, x, weight, others):
        assert define is cudnn_graph.define_linear
        return lambda: x @ weight.T + others[0]

    monkeypatch.setattr(cudnn_graph, "build_run", run)
    problem = cases.build_problem(make_case("linear", "ieee"), "cpu")
    gemm = problem.plain.gemm
    with torch.no_grad():
        expected = problem.x @ gemm.weight.T + gemm.bias
        for name in ("ours", "eager", "cudnn"):
            torch.testing.assert_close(peers.VARIANTS[name](problem.fork())(), expected)


def test_rows_that_are_checked():
    for m in (1, 16, 64):
        assert sweep.choose_rows(m).tolist() == list(range(m))
    for m in (65, 128, 16384):
        rows = sweep.choose_rows(m).tolist()
        assert len(set(rows)) == 64 and rows == sorted(rows)
        assert rows[0] == 0 and rows[-1] == m - 1
        assert rows == sweep.choose_rows(m).tolist()


def test_rounds_follow_the_size():
    def choose(most, **size):
        return sweep.choose_rounds(most, make_case()._replace(**size))

    assert choose(100, m=16) == 100
    assert choose(100, m=8192, n=8192, k=8192) == 100
    assert 10 < choose(100, m=16384, n=28672, k=8192) < 30
    assert choose(100, m=2**16, n=28672, k=8192) == sweep.FEWEST_ROUNDS
    assert choose(7, m=16384, n=28672, k=8192) == 7


# ---- a case is measured ----


class FakeGraphs:
    """A replay calls again, on a CPU; `spoil` changes what it gives."""

    def __init__(self, spoil=lambda y: y):
        self.spoil, self.captured, self.ended = spoil, [], False

    def __enter__(self):
        self.ended = False
        return self

    def __exit__(self, *exception):
        self.ended = True

    def capture(self, run):
        def replay():
            assert not self.ended
            return self.spoil(run())

        self.captured.append(replay)
        return replay


@pytest.fixture
def fake_graphs(monkeypatch):
    def use(**options):
        fake = FakeGraphs(**options)
        monkeypatch.setattr(sweep, "Graphs", lambda: fake)
        return fake

    return use


@pytest.mark.parametrize("m", [16, 100])
@pytest.mark.parametrize("model", sweep_cases.MODELS)
@pytest.mark.parametrize("precision", sweep_cases.PRECISIONS)
def test_rows_of_a_shape_pass_the_form(precision, model, m, fake_graphs, monkeypatch):
    graphs, timed = fake_graphs(), []
    time = timing.time_in_turns
    monkeypatch.setattr(
        timing, "time_in_turns", lambda runs, *r: timed.append(runs) or time(runs, *r)
    )
    names = ["ours", "eager", "bare_product"]
    rows = sweep.measure_shape("cpu", 2, names, make_case(model, precision, m))
    assert [row["variant"] for row in rows] == names and graphs.ended
    # What is timed are the replays.
    assert list(timed[0].values()) == graphs.captured
    for row in rows:
        results.check_row(row)
        assert row["graph"] is True and row["suite"] == "sweep" and row["model"] == model
        assert (row["M"], row["N"], row["K"]) == (m, 48, 64)
        assert 0 < row["rel_err"] < checking.LARGEST_ERRORS[precision]
        assert results.case_of(row) == results.case_of(
            make_case(model, precision, m).describe("sweep")
        )
    assert sweep.format_line(rows).count("\n") == 0 and "eager" in sweep.format_line(rows)
    assert sweep.format_line(rows[1:]).startswith("  eager")


def spoil_row(row, value):
    def spoil(y):
        y[row] = value
        return y

    return spoil


UNCHECKED = next(row for row in range(1, 100) if row not in sweep.choose_rows(100).tolist())


@pytest.mark.parametrize(
    "row, value, message",
    [
        (99, 0.0, "ours has a relative error"),
        (0, 1.0, "ours has a relative error"),
        # A row that is compared with nothing is known to have been written.
        (UNCHECKED, float("nan"), "ours leaves NaN"),
    ],
)
def test_wrong_replay_is_never_timed(row, value, message, fake_graphs, capsys):
    fake_graphs(spoil=spoil_row(row, value))
    with pytest.raises(checking.WrongResult, match=message):
        sweep.measure_shape("cpu", 2, ["ours"], make_case(m=100))
    assert sweep.measure_shape("cpu", 2, ["eager", "bare_product"], make_case(m=100)) == []
    assert capsys.readouterr().out.count("skipped: WrongResult") == 2


def test_peer_that_cannot_be_captured_is_left_out(fake_graphs, monkeypatch, capsys):
    graphs = fake_graphs()

    def fail(run):
        raise RuntimeError("operation not permitted when stream is capturing")

    build = peers.build_eager
    monkeypatch.setitem(peers.VARIANTS, "compile", lambda problem: build(problem))
    capture = graphs.capture
    calls = iter([capture, fail, capture])
    graphs.capture = lambda run: next(calls)(run)
    rows = sweep.measure_shape("cpu", 2, ["ours", "compile", "eager"], make_case())
    # In the order in which they are given.
    assert [row["variant"] for row in rows] == ["ours", "eager"]
    assert "compile: skipped: RuntimeError: operation not permitted" in capsys.readouterr().out


# ---- the command ----


@pytest.fixture
def run_sweep(tmp_path, monkeypatch):
    """run(*arguments) -> the shapes measured, each in 10 s; a run ends at `run.crash_at` cases."""
    seconds, measured = [0.0], []

    def measure(device, rounds, variants, case):
        if len(measured) == run.crash_at:
            raise KeyboardInterrupt
        seconds[0] += 10
        measured.append((case.m, case.n, case.k))
        names, part = sweep_cases.list_sweep_variants(variants, case), case.describe("sweep")
        return [timing.make_row(part, name, Timing(3, 2.5, 4), 0.0) for name in names]

    def run(*arguments):
        measured.clear()
        sweep.main(["--out", str(tmp_path), "--commit", "abc", *arguments])
        return list(measured)

    run.crash_at = None
    meta = dict.fromkeys(results.META, "any")
    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    monkeypatch.setattr(machine, "describe_machine", lambda commit: meta)
    monkeypatch.setattr(cudnn_graph, "find_obstacle", lambda: None)
    monkeypatch.setattr("bench.measure.run_cases.time.perf_counter", lambda: seconds[0])
    monkeypatch.setattr(sweep, "measure_shape", measure)
    return run


LINEAR = ("--models", "linear")


def test_sweep_goes_on_where_it_stopped(run_sweep, tmp_path):
    run_sweep.crash_at = 5
    with pytest.raises(KeyboardInterrupt):
        run_sweep(*LINEAR)
    run_sweep.crash_at = None
    rest = run_sweep(*LINEAR)
    assert len(rest) == 24 - 5
    assert run_sweep(*LINEAR) == []
    assert len(run_sweep(*LINEAR, "--again")) == 24
    rows = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert len(rows) == 24 * 5 and all(row["graph"] for row in rows)


def test_budget_cuts_the_sweep_into_pieces(run_sweep):
    pieces = [run_sweep("--budget", "100", *LINEAR) for _ in range(4)]
    assert [len(piece) for piece in pieces] == [10, 10, 4, 0]
    assert len({shape for piece in pieces for shape in piece}) == 24


def test_everything_is_measured_by_one_command(run_sweep):
    assert len(run_sweep()) == 178
    assert run_sweep() == []


def test_options_choose(run_sweep, tmp_path):
    assert len(run_sweep("--precisions", "fp16", "--variants", "ours,eager")) == 24
    rows = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert {(row["precision"], row["variant"]) for row in rows} == {
        ("fp16", "ours"),
        ("fp16", "eager"),
    }
    with pytest.raises(SystemExit):
        run_sweep("--models", "33")
