"""examples/export_package.py and examples/cpp on the CPU.

There a package holds PyTorch's ops: those of the library have no kernels for a CPU without Python.
"""

import shutil
import subprocess
import zipfile

import pytest
import torch
from example_packages import ExamplePackage, build_program, run_program

from examples import export_package


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return ExamplePackage("pinn", tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build_program(tmp_path_factory.mktemp("program"))


def test_a_program_runs_a_package_without_python(package, program):
    package.check_program(program, "none")


def test_a_second_process_has_no_source_of_the_model(package):
    package.check_in_python()


def test_a_package_calls_its_own_functions(package, tmp_path):
    """Torch's libraries have some of the same names, of another C++ library."""
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf")
    with zipfile.ZipFile(package.path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        archive.extract(name, tmp_path)
    command = ["readelf", "--dynamic", tmp_path / name]
    assert "(SYMBOLIC)" in subprocess.run(command, capture_output=True, text=True).stdout


def test_the_program_tells_what_is_wrong(package, program, tmp_path):
    x, y = package.name_input(package.batches[0]), tmp_path / "y.pt"
    for arguments, told in (
        (["none", package.path, x], "run_package LIBRARY PACKAGE INPUT RESULT"),
        (["none", package.path, tmp_path / "no.pt", y], "no.pt cannot be read"),
        ([tmp_path / "no.so", package.path, x, y], "no.so: cannot open shared object"),
    ):
        done = run_program(program, *arguments)
        assert done.returncode == 1 and told in done.stderr and not y.exists()


def test_command(monkeypatch, tmp_path, capsys):
    """What it hands to Inductor, but for compiling it."""
    found = []

    def export(model, x, path, most_rows, **options):
        found.append((model.training, tuple(x.shape), most_rows, set(options)))
        return path

    monkeypatch.setattr(export_package, "export_package", export)
    shared = ["--model", "dlrm_top", "--out", "m.pt2", "--device", "cpu", "--rows", "9"]
    assert export_package.main([*shared, "--input", str(tmp_path / "x.pt")]) == 0
    assert export_package.main([*shared, "--no-fuse", "--most-rows", "99"]) == 0
    assert capsys.readouterr().out == "m.pt2: dlrm_top for cpu\n" * 2
    ((_, shape, most, ours), (_, _, fewer, none)) = found
    assert shape == (9, 479) and (most, fewer) == (16384, 99)
    assert "post_grad_custom_pre_pass" in ours and not none
    assert torch.load(tmp_path / "x.pt").shape == (9, 479)
