"""What an isolated build asks for, and what it keeps for the next one."""

import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from build_system import cuda_toolkit, cutlass_headers, library
from build_system.paths import KEPT
from build_system.torch_library import TorchLibrary
from build_system.wheel import backend, isolation

TEMPORARY = "pip-build-env-x1/overlay/lib/python3.11/site-packages/torch"


@pytest.fixture(autouse=True)
def checkout(monkeypatch, tmp_path):
    for module in (isolation, cuda_toolkit, cutlass_headers):
        monkeypatch.setattr(module, "ROOT", tmp_path / "checkout")
    for name in ("CUTLASS_FUSED_SKIP_KERNELS", "CUTLASS_PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "checkout"


@pytest.mark.parametrize(
    "path, expected",
    [
        (f"/tmp/{TEMPORARY}", True),
        ("/tmp/build-env-q8/lib/python3.12/site-packages/torch", True),
        ("/home/me/.cache/uv/builds-v0/.tmpA1/lib/python3.12/site-packages/torch", True),
        ("/home/me/build-environment/lib/python3.12/site-packages/torch", False),
        ("/home/me/.venv/lib/python3.11/site-packages/torch", False),
    ],
)
def test_temporary_environments(monkeypatch, path, expected):
    assert isolation.is_temporary(path) == expected
    spec = SimpleNamespace(origin=f"{path}/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert isolation.is_isolated() == expected


def write_torch(root):
    (root / "include/torch").mkdir(parents=True)
    (root / "include/torch/a.h").write_text("1")
    (root / "lib").mkdir()
    (root / "lib/libtorch_cpu.so").write_text(str(root))
    return TorchLibrary(root / "include", root / "lib", "2.12.0+cu130")


def test_headers_of_torch_have_one_path_and_time_in_all_builds(tmp_path, checkout):
    first = isolation.keep_torch(write_torch(tmp_path / TEMPORARY))
    assert first.include == checkout / KEPT / "torch-2.12.0+cu130/include"
    header = first.include / "torch/a.h"
    os.utime(header, (1, 1))
    second = isolation.keep_torch(write_torch(tmp_path / TEMPORARY.replace("x1", "x2")))
    assert second == first and header.stat().st_mtime == 1
    # The libraries that are there now.
    assert "x2" in (second.lib / "libtorch_cpu.so").read_text()


def test_other_torch_is_read_where_it_lies(tmp_path):
    torch = write_torch(tmp_path / "site-packages/torch")
    assert isolation.keep_torch(torch) is torch


def test_missing_packages_are_installed_once_and_found(monkeypatch, checkout):
    """Of CUTLASS nothing but its own package, and so its headers."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(cuda_toolkit.shutil, "which", lambda name: None)
    monkeypatch.setattr(cuda_toolkit, "USUAL_ROOT", checkout)
    commands = []

    def install(command):
        commands.append(command)
        folder = isolation.Path(command[-1])
        file = "cutlass_library/source/include/cutlass/version.h"
        if "cuda-toolkit" in folder.name:
            file = "nvidia/cu13/bin/nvcc"
        (folder / file).parent.mkdir(parents=True)
        (folder / file).touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(isolation.subprocess, "run", install)
    isolation.fetch_missing()
    kept = checkout / KEPT
    assert cuda_toolkit.locate_nvcc() == kept / "cuda-toolkit-13.0.2/nvidia/cu13/bin/nvcc"
    found = cutlass_headers.locate_cutlass()
    assert found == kept / "nvidia-cutlass-4.2.0.0/cutlass_library/source"
    assert {command[-3]: "--no-deps" in command for command in commands} == {
        cutlass_headers.REQUIREMENT: True,
        cuda_toolkit.REQUIREMENT: False,
    }
    isolation.fetch_missing()
    assert len(commands) == 2


def test_cut_off_installation_is_made_anew(monkeypatch, checkout):
    folder = checkout / KEPT / "nvidia-cutlass-4.2.0.0"

    def fail(command):
        isolation.Path(command[-1]).mkdir(parents=True)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(isolation, "missing_packages", lambda: [cutlass_headers.REQUIREMENT])
    monkeypatch.setattr(isolation.subprocess, "run", fail)
    for _ in range(2):
        with pytest.raises(SystemExit, match="pip did not install nvidia-cutlass"):
            isolation.fetch_missing()
        assert not folder.exists()


def list_requirements(hook, **variables):
    """In a process of its own, as a front end calls the hook, where there is no torch yet."""
    code = f"""
import sys
from build_system.wheel import backend
print(*backend.{hook}())
assert "torch" not in sys.modules
"""
    variables |= {"PYTHONPATH": str(library.ROOT / "src")}
    options = {"cwd": library.ROOT, "env": os.environ | variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, **options, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


def test_only_a_build_of_kernels_asks_for_torch():
    assert {"torch>=2.10", "ninja", "pip"} <= set(list_requirements("get_requires_for_build_wheel"))
    assert "torch>=2.10" not in list_requirements("get_requires_for_build_sdist")
    skipped = list_requirements("get_requires_for_build_wheel", CUTLASS_FUSED_SKIP_KERNELS="1")
    assert not {"torch>=2.10", "ninja"} & set(skipped)
    text = (library.ROOT / "pyproject.toml").read_text()
    required = text.partition("[build-system]")[2].partition("\n[")[0]
    assert "torch" not in required.partition("requires = ")[2].partition("]")[0]


def test_editable_builds_ask_for_the_same():
    assert backend.list_compiling() == ["torch>=2.10", "ninja", "pip"]


@pytest.mark.parametrize(
    "nvcc, torch, said",
    [
        ((13, 0), (12, 8), "needs a newer driver than torch, one for CUDA 13"),
        ((13, 0), (13, 2), ""),
        ((12, 8), (13, 0), ""),
        ((13, 0), None, ""),
    ],
)
def test_build_tells_of_a_newer_driver(nvcc, torch, said):
    found = library.compare_cuda(nvcc, torch)
    assert said in found and bool(said) == bool(found)


def test_ninja_runs_an_interpreter_that_stays(monkeypatch):
    """Its path is part of what ninja compares; the packages are those of the environment."""
    assert isolation.find_python() == sys.executable
    assert isolation.make_environment() == dict(os.environ)
    inside = "/home/me/.cache/uv/builds-v0/.tmpA1"
    monkeypatch.setattr(sys, "executable", f"{inside}/bin/python")
    monkeypatch.setattr(sys, "path", ["", "/mine", f"{inside}/site-packages"])
    assert isolation.find_python() == sys._base_executable
    assert not isolation.is_temporary(isolation.find_python())
    expected = os.environ | {"PYTHONPATH": f"/mine:{inside}/site-packages"}
    assert isolation.make_environment() == expected
