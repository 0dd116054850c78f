"""The checks of an installed package find faults, and the matrix tells of them."""

import json
import re
import subprocess

import pytest
import torch

import cutlass_fused
from build_system.paths import ROOT
from build_system.wheel import installed, matrix
from cutlass_fused import functional

ROW = {
    "python": "3.12.1",
    "torch": "2.13.0+cpu",
    "cuda": None,
    "folder": "/",
    "library": "/a/b.so cannot be loaded: libtorch_cuda.so: cannot open shared object file",
    "switch": "kernels in Python: there is no file /a",
    "checks": 3,
    "failed": ["check_b"],
}


def test_row():
    cells = matrix.format_row(ROW).split(" | ")
    assert cells[:3] == ["| 3.12.1", "2.13.0+cpu", "none"]
    assert cells[3] == "not loaded: there is no libtorch_cuda"
    assert matrix.shorten("/a/b.so cannot be loaded: /c/d.so: undefined symbol") == (
        "d.so: undefined symbol"
    )
    assert cells[4:] == ["kernels in Python", "2 of 3 pass |"]
    whole = ROW | {"library": "loaded", "failed": [], "cuda": "13.0", "switch": "kernels in C++"}
    assert matrix.format_row(whole) == (
        "| 3.12.1 | 2.13.0+cpu | 13.0 | loads | kernels in C++ | 3 of 3 pass |"
    )
    assert matrix.HEAD.splitlines()[0].count("|") == matrix.format_row(whole).count("|")


@pytest.mark.parametrize("name", installed.make_pairs())
def test_checks_pass_here(name):
    """All but those of compilers, which other tests have."""
    x = torch.rand(installed.ROWS, installed.IN, dtype=torch.float64)
    for check in (installed.check_forward_and_backward, installed.check_state):
        check(*installed.make_pairs()[name], x)


@pytest.mark.parametrize("name", installed.make_pairs())
def test_checks_find_a_wrong_number(name):
    x = torch.rand(installed.ROWS, installed.IN, dtype=torch.float64)
    for check in (installed.check_forward_and_backward, installed.check_state):
        plain, fused = installed.make_pairs()[name]
        with torch.no_grad():
            next(fused.parameters()).mul_(1.001)
        with pytest.raises(AssertionError):
            check(plain, fused, x)


def test_failed_check_is_told(monkeypatch, capsys):
    def fail(x):
        raise AssertionError("planted")

    monkeypatch.setattr(installed, "CHECKS", ())
    monkeypatch.setattr(installed, "SINGLE_CHECKS", (fail, installed.check_config))
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", "/nonexistent")
    installed.main()
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row["failed"] == ["fail"] and row["checks"] == 2
    assert row["torch"] == torch.__version__ and functional.__file__.startswith(row["folder"])


def test_the_checkout_is_not_what_is_checked(monkeypatch):
    """Each environment is made of the torch that was asked for, and the wheel."""
    commands = []

    def run(command, **options):
        commands.append(command)
        assert "PYTHONPATH" not in options.get("env", {})
        return subprocess.CompletedProcess(command, 0, json.dumps(ROW | {"folder": "/work"}))

    monkeypatch.setenv("PYTHONPATH", "/work")
    monkeypatch.setattr(matrix.subprocess, "run", run)
    monkeypatch.setattr(matrix.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="ran on /work, which is not what was installed"):
        matrix.check(matrix.Path("a.whl"), "python3.12", "2.13.0")
    assert commands[0][:3] == ["python3.12", "-m", "venv"]
    assert commands[1][-4:] == ["torch==2.13.0", "numpy", "setuptools", "a.whl"]
    assert commands[2][-1] == "installed.py"


def read_page():
    """The text, and the cells of every row of a table of the matrix."""
    text = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    tables = text.split(matrix.HEAD + "\n")[1:]
    assert tables
    lines = [line for table in tables for line in table.partition("\n\n")[0].splitlines()]
    return text, [line.strip("| ").split(" | ") for line in lines]


def test_page_is_of_this_version_and_of_these_checks():
    text, rows = read_page()
    count = len(list(installed.list_checks()))
    assert f"wheels of {cutlass_fused.__version__} " in text and f"[{count} checks](" in text
    assert {row[-1] for row in rows} == {f"{count} of {count} pass"}


def test_classifiers_are_the_versions_of_python_that_ran():
    ran = {row[0].rpartition(".")[0] for row in read_page()[1]}
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert ran == set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', metadata))
