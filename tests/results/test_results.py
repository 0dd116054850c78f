"""The form of the benches' result files, and the files themselves."""

import json
import re

import pytest

from bench.measure import merge, results

META = {
    "gpu": "h200",
    "driver": "580.0",
    "cuda": "13.0",
    "torch": "2.11.0",
    "commit": "abc",
    "date": "2026-11-21",
}
ROW = {
    "suite": "models",
    "model": "12",
    "mode": "eval",
    "precision": "bf16",
    "M": 1024,
    "N": 8192,
    "K": 8192,
    "variant": "ours",
    "ms": 0.3,
    "ms_min": 0.29,
    "ms_max": 0.35,
    "rel_err": 1e-3,
}
OPTIONAL = {
    "engine": "fp16x3",
    "tile": "128x256x64",
    "grad": True,
    "graph": False,
    "gbps": 4000.0,
    "err_median": 0.0,
    "err_componentwise": 1e-6,
    "wall_ms": 0.4,
    "peak_mib": 0.0,
}


# The form


def test_rows_of_the_form_pass():
    results.check_row(ROW)
    results.check_row(ROW | OPTIONAL)
    results.check_row(ROW | {"suite": "sweep", "model": "linear", "variant": "bare_product"})
    results.check_row(ROW | {"suite": "memory_bound", "model": "softmax", "K": 0, "gbps": 4000.0})
    results.check_row(ROW | {"suite": "accuracy", "model": "randn", "variant": "bf16x3"})
    results.check_row(ROW | {"suite": "training", "model": "pinn", "variant": "ours_compile"})


@pytest.mark.parametrize("key", ROW)
def test_row_without_a_key_is_rejected(key):
    row = {name: value for name, value in ROW.items() if name != key}
    with pytest.raises(results.InvalidResult, match=f"{key} is missing"):
        results.check_row(row)


@pytest.mark.parametrize(
    "key, value",
    [
        ("speed", 1.0),
        ("suite", "model"),
        ("suite", ["models"]),
        ("model", 12),
        ("mode", "training"),
        ("precision", "fp32"),
        ("M", 0),
        ("N", 8192.0),
        ("K", -1),
        ("K", True),
        ("variant", "tensorrt"),
        ("variant", None),
        ("ms", 0),
        ("ms", float("nan")),
        ("ms_min", "0.29"),
        ("ms_max", float("inf")),
        ("rel_err", -1e-9),
        ("rel_err", float("nan")),
        ("engine", ""),
        ("grad", 1),
        ("gbps", 0.0),
        ("wall_ms", 0.0),
        ("peak_mib", -1.0),
    ],
)
def test_row_with_a_wrong_value_is_rejected(key, value):
    with pytest.raises(results.InvalidResult, match=f"row: {key} "):
        results.check_row(ROW | {key: value})


@pytest.mark.parametrize(
    "suite, model",
    [("models", "linear"), ("sweep", "softmax"), ("accuracy", "linear"), ("host", 0)],
)
def test_model_of_another_suite_is_rejected(suite, model):
    with pytest.raises(results.InvalidResult, match="model"):
        results.check_row(ROW | {"suite": suite, "model": model})


@pytest.mark.parametrize("change", [{"K": 0}, {"suite": "memory_bound", "model": "softmax"}])
def test_without_a_product_there_is_no_k(change):
    with pytest.raises(results.InvalidResult, match="K must be 0"):
        results.check_row(ROW | change)


@pytest.mark.parametrize("change", [{"ms": 0.28}, {"ms": 0.36}])
def test_median_outside_its_extremes_is_rejected(change):
    with pytest.raises(results.InvalidResult, match="between ms_min and ms_max"):
        results.check_row(ROW | change)


@pytest.mark.parametrize("change", [{"commit": ""}, {"torch": None}, {"host": "a"}])
def test_meta_is_checked(change, tmp_path):
    with pytest.raises(results.InvalidResult, match="meta"):
        results.ResultFile(tmp_path, "models", META | change)


# The files


def test_file_is_written_and_read_back(tmp_path):
    file = results.ResultFile(tmp_path / "h200", "models", META)
    file.replace([ROW, ROW | {"variant": "eager"} | OPTIONAL])
    assert json.loads((tmp_path / "h200/models.json").read_text()) == {
        "meta": META,
        "rows": file.rows,
    }
    assert results.ResultFile(tmp_path / "h200", "models", META).rows == file.rows
    assert [path.name for path in (tmp_path / "h200").iterdir()] == ["models.json"]


def test_rerun_replaces_the_rows_of_its_case_only(tmp_path):
    file = results.ResultFile(tmp_path, "models", META)
    other = ROW | {"precision": "ieee"}
    with_grad = ROW | {"grad": True}
    file.replace([ROW, ROW | {"variant": "eager"}, other, with_grad])
    faster = ROW | {"ms": 0.295}
    file.replace([faster])
    # The eager row came from another run than the new one.
    assert file.rows == [other, faster, with_grad]
    assert file.list_variants(results.case_of(ROW)) == {"ours"}
    assert file.list_variants(results.case_of(ROW | {"M": 1})) == set()


def test_rows_of_another_suite_and_repeated_rows_are_rejected(tmp_path):
    file = results.ResultFile(tmp_path, "models", META)
    for rows in ([ROW | {"suite": "trust"}], [ROW, ROW]):
        with pytest.raises(results.InvalidResult):
            file.replace(rows)
    assert file.rows == [] and not file.path.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"meta": META, "rows": [{"ms": 1}]})])
def test_broken_file_is_told_and_left_alone(text, tmp_path):
    path = tmp_path / "models.json"
    path.write_text(text)
    with pytest.raises(results.InvalidResult, match="no result file"):
        results.ResultFile(tmp_path, "models", META)
    assert path.read_text() == text


@pytest.mark.parametrize("change", [{"commit": "def"}, {"gpu": "h100"}, {"torch": "2.12.0"}])
def test_results_of_other_code_or_machines_are_not_continued(change, tmp_path):
    results.ResultFile(tmp_path, "models", META).replace([ROW])
    with pytest.raises(results.InvalidResult, match="--again"):
        results.ResultFile(tmp_path, "models", META | change)
    assert results.ResultFile(tmp_path, "models", META | change, start_anew=True).rows == []
    later = META | {"date": "2026-11-22", "driver": "580.1"}
    assert results.ResultFile(tmp_path, "models", later).rows == [ROW]


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("before, now", [(COMMIT[:7], COMMIT), (COMMIT, COMMIT[:12])])
def test_short_commit_goes_on_with_its_own_results(before, now, tmp_path):
    """A machine without git knows only what it was told; the file keeps all digits."""
    results.ResultFile(tmp_path, "models", META | {"commit": before}).replace([ROW])
    file = results.ResultFile(tmp_path, "models", META | {"commit": now})
    assert file.rows == [ROW] and file.meta["commit"] == COMMIT
    with pytest.raises(results.InvalidResult, match="gpu h200"):
        results.ResultFile(tmp_path, "models", META | {"commit": now, "gpu": "h100"})


@pytest.mark.parametrize(
    "before, now",
    [
        (COMMIT, COMMIT[:6] + "0"),
        (COMMIT[:6], COMMIT),  # so few digits are no commit
        ("release", "release-2"),
    ],
)
def test_other_commit_is_not_gone_on_with(before, now, tmp_path):
    results.ResultFile(tmp_path, "models", META | {"commit": before}).replace([ROW])
    with pytest.raises(results.InvalidResult, match=f"commit {before} .now {now}"):
        results.ResultFile(tmp_path, "models", META | {"commit": now})


def test_median_far_above_the_least_is_unsteady(tmp_path):
    assert not results.is_unsteady(ROW | {"ms": 0.3, "ms_min": 0.2})
    assert results.is_unsteady(ROW | {"ms": 0.31, "ms_min": 0.2})
    file = results.ResultFile(tmp_path, "models", META)
    file.replace([ROW, ROW | {"variant": "eager", "ms_min": 0.1}, ROW | {"precision": "ieee"}])
    assert file.is_unsteady(results.case_of(ROW))
    assert not file.is_unsteady(results.case_of(ROW | {"precision": "ieee"}))


def test_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    file = results.ResultFile(tmp_path, "models", META)
    file.replace([ROW])
    before = file.path.read_text()

    def fail(source, target):
        # Whatever takes the place of the file is complete by then.
        assert len(json.loads(open(source).read())["rows"]) == 2
        raise OSError("no space left")

    monkeypatch.setattr(results.os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        file.replace([ROW, ROW | {"variant": "eager"}])
    assert file.path.read_text() == before
    assert list(tmp_path.iterdir()) == [file.path]


# Parts of a suite, from several GPUs


def write_part(folder, rows, suite="models", meta=META):
    results.ResultFile(folder, suite, meta).replace(rows)
    return folder


def test_parts_become_one_file(tmp_path, capsys):
    bf16, fp16, linear = ROW, ROW | {"precision": "fp16"}, ROW | {"suite": "sweep", "graph": True}
    one = write_part(tmp_path / "one", [bf16])
    two = write_part(tmp_path / "two", [fp16])
    write_part(two, [linear], "sweep")
    to = write_part(tmp_path / "to", [ROW | {"precision": "ieee"}])
    assert merge.main([str(one), str(two), "--to", str(to)]) == 0
    found = results.ResultFile.read(to / "models.json")
    assert [row["precision"] for row in found.rows] == ["ieee", "bf16", "fp16"]
    assert results.ResultFile.read(to / "sweep.json").rows == [linear]
    assert "models.json: 3 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    "rows, meta, error",
    [
        ([ROW | {"variant": "eager"}], META, "both have"),
        ([ROW | {"precision": "fp16"}], META | {"gpu": "h100"}, "gpu h200 .now h100."),
        ([ROW | {"precision": "fp16"}], META | {"commit": "def"}, "commit abc .now def."),
    ],
)
def test_parts_that_do_not_fit_are_refused(rows, meta, error, tmp_path, capsys):
    one, two = write_part(tmp_path / "one", [ROW]), write_part(tmp_path / "two", rows, meta=meta)
    to = tmp_path / "to"
    assert merge.main([str(one), str(two), "--to", str(to)]) == 2
    assert re.search(error, capsys.readouterr().err) and not to.exists()


def test_folders_without_results_are_refused(tmp_path, capsys):
    assert merge.main([str(tmp_path), "--to", str(tmp_path / "to")]) == 2
    assert "no result file in" in capsys.readouterr().err
