"""What is installed: every file of the Python package, and nothing else."""

import os
import subprocess
import sys
import tarfile

import pytest

from build_system.paths import COMMON_KERNELS, OPEN_KERNELS, PACKAGE, ROOT


def list_files(folder):
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    # The libraries and their kernels are built, and no files of the package.
    built = (".so", OPEN_KERNELS.name, COMMON_KERNELS.name)
    return {path for path in paths if "__pycache__" not in path and not path.endswith(built)}


def test_every_file_of_the_package_is_installed(tmp_path):
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    command += ["build_py", "--build-lib", str(tmp_path / "lib")]
    environment = os.environ | {"CUTLASS_FUSED_SKIP_KERNELS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    installed = list_files(tmp_path / "lib")
    assert installed == {f"{PACKAGE}/{path}" for path in list_files(ROOT / PACKAGE)}
    assert {f"{PACKAGE}/schemas.txt", f"{PACKAGE}/nn/__init__.py"} <= installed


def test_everything_that_a_build_needs_is_in_an_sdist(tmp_path):
    """All that git has, but what is for work on the sources alone."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("this is no git checkout")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    command += ["sdist", "--dist-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as packed:
        found = {each.name.partition("/")[2] for each in packed.getmembers() if each.isfile()}
    expected = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    assert found - expected <= {"PKG-INFO", "setup.cfg"} and len(expected) > 1000
    assert all(name.startswith(".") for name in expected - found), expected - found
