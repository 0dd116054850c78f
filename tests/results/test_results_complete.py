"""The committed results hold what the benches measure today: every case, with every variant."""

import pytest

from bench import accuracy, host, memory_bound, models, plot, sweep, training
from bench.cases import cudnn_graph, peers
from bench.chains import __main__ as chains
from bench.end_to_end import __main__ as end_to_end
from bench.epilogues import __main__ as epilogues
from bench.measure import machine, results
from bench.tails import __main__ as tails
from bench.tails.cases import MODELS as TAILS
from bench.tails.cases import has_dropout

SUITES = {
    "models": models,
    "host": host,
    "memory_bound": memory_bound,
    "sweep": sweep,
    "accuracy": accuracy,
    "training": training,
    "epilogues": epilogues,
    "end_to_end": end_to_end,
    "chains": chains,
    "tails": tails,
}
SHOWN = [suite for suite in SUITES if suite in plot.SHOWN]
# The beginnings of cases: what the last run's time did not reach. bench/README.md says so. An entry
# that was measured after all is an error.
PENDING: dict[str, list[tuple]] = {
    "tails": [("tails", name, "train") for name in TAILS if not has_dropout(name)]
}
# The same of variants, in all cases.
PENDING_VARIANTS: dict[str, list[str]] = {}
# What a case of a suite is measured with, besides what it says itself.
WEIGHTS = {"training": (("new",), ("kept",))}


def read_rows(suite):
    both = [False, True]
    with_steps = dict.fromkeys(("epilogues", "end_to_end", "tails"), both)
    grads = ({"training": [True]} | with_steps).get(suite, [False])
    graph = suite == "sweep"
    return [row for grad in grads for row in plot.read_rows(None, suite, graph, grad)[1]]


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
                for weights in WEIGHTS.get(suite, ((),)):
                    key = results.case_of(case.describe(file.suite, *weights))
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


@pytest.mark.parametrize("suite", SHOWN)
def test_every_case_is_there_with_every_variant(suite, list_wanted):
    """`python -m bench.SUITE --out DIR` measures what is missing in a folder."""
    found = {(results.case_of(row), row["variant"]) for row in read_rows(suite)}
    wanted, late = list_wanted(suite), set(PENDING.get(suite, []))
    pending = {pair for pair in wanted if any(pair[0][: len(case)] == case for case in late)}
    late_variants = {pair for pair in wanted if pair[1] in PENDING_VARIANTS.get(suite, [])}
    assert not (pending | late_variants) & found
    assert all(any(pair[0][: len(case)] == case for pair in pending) for case in late)
    missing = describe(wanted - pending - late_variants - found)
    stale = describe(found - wanted)
    assert not missing, "\n".join(["not measured:", *missing])
    assert not stale, "\n".join(["measured by no bench any more:", *stale])


@pytest.mark.parametrize("suite", SHOWN)
def test_what_is_compared_is_steady(suite):
    """`python -m bench.SUITE --out DIR --unsteady` measures the others again."""
    pairs = {
        (results.case_of(row), row["variant"])
        for row in read_rows(suite)
        if row["variant"] in ("ours", "eager") and results.is_unsteady(row)
    }
    assert not pairs, "\n".join(["unsteady:", *describe(pairs)])
