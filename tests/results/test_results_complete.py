"""The committed results hold what the benches measure today: every case, with every variant."""

import pytest

from bench import accuracy, host, memory_bound, models, plot, sweep
from bench.cases import cudnn_graph, peers
from bench.measure import machine, results

SUITES = {
    "models": models,
    "host": host,
    "memory_bound": memory_bound,
    "sweep": sweep,
    "accuracy": accuracy,
}
# (model, mode, precision): what the last run's time did not reach. README.md says so. An entry that
# was measured after all is an error.
PENDING: dict[str, list[tuple[str, str, str]]] = {}


@pytest.fixture
def list_wanted(tmp_path, monkeypatch):
    """(case, variant) for all that a bench measures without options, in text."""
    meta = dict.fromkeys(results.META, "any")
    monkeypatch.setattr(machine, "check_gpu", lambda: None)
    monkeypatch.setattr(machine, "describe_machine", lambda commit: meta)
    monkeypatch.setattr(cudnn_graph, "find_obstacle", lambda: None)
    monkeypatch.setattr(peers, "has_sm90_kernels", lambda: True)

    def list_wanted(suite):
        wanted = set()

        def collect(file, options, cases, list_variants, *others):
            for case in cases:
                key = results.case_of(case.describe(file.suite))
                wanted.update((key, variant) for variant in list_variants(case))

        monkeypatch.setattr(SUITES[suite], "run_cases", collect)
        SUITES[suite].main(["--out", str(tmp_path)])
        return wanted

    return list_wanted


def describe(pairs):
    """A line for each case: suite, model, mode, precision, M, N, K and more, then its variants."""
    cases = {}
    for case, variant in sorted(pairs):
        cases.setdefault(" ".join(str(part) for part in case if part), []).append(variant)
    return [f"{case}: {', '.join(variants)}" for case, variants in cases.items()]


@pytest.mark.parametrize("suite", SUITES)
def test_every_case_is_there_with_every_variant(suite, list_wanted):
    """`python -m bench.SUITE --out bench/results/h200` measures what is missing."""
    _, rows = plot.read_rows(plot.RESULTS, suite, graph=suite == "sweep")
    found, wanted = {(results.case_of(row), row["variant"]) for row in rows}, list_wanted(suite)
    pending = {pair for pair in wanted if pair[0][1:4] in PENDING.get(suite, [])}
    assert not pending & found and {pair[0][1:4] for pair in pending} == set(PENDING.get(suite, []))
    missing, stale = describe(wanted - pending - found), describe(found - wanted)
    assert not missing, "\n".join(["not measured:", *missing])
    assert not stale, "\n".join(["measured by no bench any more:", *stale])


@pytest.mark.parametrize("suite", SUITES)
def test_what_is_compared_is_steady(suite):
    """`python -m bench.SUITE --out bench/results/h200 --unsteady` measures the others again."""
    _, rows = plot.read_rows(plot.RESULTS, suite, graph=suite == "sweep")
    pairs = {
        (results.case_of(row), row["variant"])
        for row in rows
        if row["variant"] in ("ours", "eager") and results.is_unsteady(row)
    }
    assert not pairs, "\n".join(["unsteady:", *describe(pairs)])
