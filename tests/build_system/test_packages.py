"""What is installed: every file of the Python package, and nothing else."""

import os
import subprocess
import sys

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
