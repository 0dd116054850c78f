"""bench.builds: its cases, what it tells, and that it times the build that it was given."""

import math

import pytest

from bench import builds


def test_cases():
    cases = builds.list_cases(list(builds.SUITES))
    assert len({tuple(case.items()) for case in cases}) == len(cases)
    by_suite = {suite: builds.list_cases([suite]) for suite in builds.SUITES}
    assert sum(map(len, by_suite.values())) == len(cases)
    assert len(by_suite["models"]) == 28  # those of the README's table
    assert len(by_suite["memory_bound"]) == 48
    assert len(by_suite["sweep"]) == 30


def test_summary_is_a_geometric_mean():
    rows = [{"suite": "models", "ratio": ratio} for ratio in (0.5, 2.0, 8.0)]
    rows += [{"suite": "host", "ratio": 0.9}, {"suite": "host", "error": {"after": "none"}}]
    models, host = builds.summarize(rows)
    assert models == "models: 3 cases, after / before 2.0000, 0.500 to 8.000"
    assert host.startswith("host: 1 cases, after / before 0.9000")


def test_a_row_tells_results_that_differ():
    row = {**builds.list_cases(["sweep"])[0], "before": 1.0, "after": 2.0, "ratio": 2.0}
    assert "differ" not in builds.tell({**row, "norms": 1.001})
    assert "results differ" in builds.tell({**row, "norms": 1.1})
    assert "results differ" in builds.tell({**row, "norms": math.nan})


class Recorder:
    """A build that takes so many milliseconds."""

    def __init__(self, ms, log, name):
        self.ms, self.log, self.name = ms, log, name

    def ask(self, **request):
        if "samples" in request:
            self.log.append(self.name)
            return {"ms": [100.0] + [self.ms] * (request["samples"] - 1)}
        return {"norm": 3.0}


def test_rounds_alternate_and_the_first_sample_is_dropped():
    log = []
    pairs = [
        {"before": Recorder(2.0, log, "before"), "after": Recorder(ms, log, "after")}
        for ms in (3.0, 12.0)
    ]
    row = builds.time_case(pairs, {"suite": "models"}, rounds=4, samples=3)
    assert (row["before"], row["after"], row["norms"]) == (2.0, 12.0, 1.0)
    assert row["ratios"] == [1.5, 6.0] and row["ratio"] == pytest.approx(3.0)
    assert log == ["after", "before", "before", "after"] * 4


def test_a_case_that_one_build_refuses():
    class Refusing(Recorder):
        def ask(self, **request):
            return {"error": "RuntimeError: no"} if "prepare" in request else {}

    pair = {"before": Recorder(2.0, [], "before"), "after": Refusing(1.0, [], "after")}
    row = builds.time_case([pair, pair], {"suite": "models"}, rounds=4, samples=3)
    assert row["error"] == {"after": "RuntimeError: no"} and "ratio" not in row


def test_a_folder_without_the_package_is_refused(tmp_path):
    with pytest.raises(SystemExit):
        builds.Build(tmp_path)
