"""What the build finds and what it refuses, each refusal in one sentence with the remedy."""

import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from build_system import (
    architectures,
    cuda_toolkit,
    cutlass_headers,
    host_compiler,
    missing_packages,
    torch_library,
)
from build_system.architectures import Arch

NVCC_13 = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
SM80, SM90, SM100 = (architectures.ARCH_GROUPS[name] for name in ("Sm80", "Sm90", "Sm100"))


def parse(text):
    return architectures.parse_architectures(text)


def write_executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_cutlass(root, major, minor):
    header = cutlass_headers.version_header(root)
    header.parent.mkdir(parents=True)
    header.write_text(
        f"#define CUTLASS_MAJOR {major}\n#define CUTLASS_MINOR {minor}\n#define CUTLASS_PATCH 1\n"
    )
    return root


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("CUTLASS_FUSED_ARCHS", "CUTLASS_FUSED_SKIP_KERNELS", "CUTLASS_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_package(monkeypatch):
    """importlib finds none of the packages that the build looks for."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def toolkit():
    try:
        return cuda_toolkit.find_cuda_toolkit()
    except SystemExit as missing:
        pytest.skip(str(missing))


# Architectures


def test_parse_architectures():
    assert parse("9.0a; 8.0;8.0;") == [Arch(8, 0), Arch(9, 0, "a")]
    assert list(map(str, parse("12.0;10.0a;8.6"))) == ["8.6", "10.0a", "12.0"]


@pytest.mark.parametrize(
    "text, said",
    [
        ("8", "'8'"),
        ("sm_80", "'sm_80'"),
        ("8.0 9.0a", "'8.0 9.0a'"),
        ("8.0;9.0b", "'9.0b'"),
        ("7.5", "oldest GPU supported is 8.0"),
        ("12.0a", "only 9.0a and 10.0a have kernels of their own"),
        (";", "no architecture"),
    ],
)
def test_malformed_architectures_end_in_one_sentence(text, said):
    with pytest.raises(SystemExit) as end:
        parse(text)
    assert said in str(end.value) and '"8.0;9.0a"' in str(end.value)
    assert "\n" not in str(end.value)


def test_variable_overrides_the_gpus(monkeypatch):
    monkeypatch.setattr(architectures, "detect_gpus", lambda: [(8, 6)])
    assert architectures.choose_architectures(NVCC_13) == [Arch(8, 6)]
    monkeypatch.setenv("CUTLASS_FUSED_ARCHS", "12.0")
    assert architectures.choose_architectures(NVCC_13) == [Arch(12, 0)]
    with pytest.raises(SystemExit, match="12.0, which this nvcc cannot compile for"):
        architectures.choose_architectures({"sm_80", "sm_90"})


@pytest.mark.parametrize(
    "gpus, expected",
    [
        ([], "8.0;9.0a"),
        ([(7, 5)], "8.0;9.0a"),  # nothing here can run the library: build the default
        ([(9, 0), (8, 0), (9, 0)], "8.0;9.0a"),
        ([(10, 0)], "10.0"),  # no GPU has run the kernels of 10.0a: a list must name it
        ([(7, 5), (8, 9)], "8.9"),
        ([(13, 0)], "8.0"),  # newer than nvcc: the PTX of 8.0
    ],
)
def test_architectures_follow_the_gpus(monkeypatch, gpus, expected):
    monkeypatch.setattr(architectures, "detect_gpus", lambda: gpus)
    assert architectures.choose_architectures(NVCC_13) == parse(expected)


def test_broken_driver_counts_as_no_gpu(monkeypatch):
    def refuse():
        raise RuntimeError("driver")

    monkeypatch.setattr(torch.cuda, "is_available", refuse)
    assert architectures.detect_gpus() == []


def test_gencode_makes_all_machine_code_from_one_front_end_pass():
    def code(group, archs):
        return architectures.gencode_flags(group, parse(archs))

    assert code(SM80, "8.0;9.0a") == ["-gencode", "arch=compute_80,code=[sm_80,sm_90,compute_80]"]
    assert code(SM80, "9.0;9.0a") == ["-gencode", "arch=compute_80,code=[sm_90]"]
    assert code(SM80, "8.9;12.0") == ["-gencode", "arch=compute_80,code=[sm_89,sm_120]"]
    assert code(SM90, "8.0;9.0a") == ["-gencode", "arch=compute_90a,code=[sm_90a]"]
    assert code(SM90, "9.0;9.0a") == ["-gencode", "arch=compute_90a,code=[sm_90a]"]
    for archs in ("8.0;9.0", "9.0", "8.0", "12.0"):
        assert code(SM90, archs) == []
    assert code(SM100, "8.0;10.0a") == ["-gencode", "arch=compute_100a,code=[sm_100a]"]
    for archs in ("8.0;9.0a", "10.0", "8.0;12.0"):
        assert code(SM100, archs) == []


def test_own_passes_leave_the_common_one():
    def code(archs):
        return architectures.gencode_flags(SM80, parse(archs), ("90",))

    own = ["-gencode", "arch=compute_90,code=sm_90"]
    assert code("8.0;9.0a") == ["-gencode", "arch=compute_80,code=[sm_80,compute_80]", *own]
    assert code("9.0;9.0a") == own
    assert code("8.9") == ["-gencode", "arch=compute_80,code=[sm_89]"]


def test_every_group_serves_a_gpu_of_its_own():
    """The oldest any GPU; a newer one the GPU alone whose instructions it uses."""
    for arch in ("8.0", "8.6", "9.0", "9.0a", "10.0", "10.0a", "12.0"):
        assert SM80.runs_on(*parse(arch))
        assert SM90.runs_on(*parse(arch)) == (arch == "9.0a")
        assert SM100.runs_on(*parse(arch)) == (arch == "10.0a")


def test_only_8_0_ships_ptx():
    assert architectures.shipped_ptx(parse("8.0;9.0a")) == "8.0"
    assert architectures.shipped_ptx(parse("8.6;9.0a")) == ""


# CUTLASS


def test_cutlass_is_taken_in_order(monkeypatch, tmp_path, no_package):
    monkeypatch.setattr(cutlass_headers, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="headers were not found; set CUTLASS_PATH"):
        cutlass_headers.find_cutlass()

    package = tmp_path / "cutlass_library"
    write_cutlass(package / "source", 4, 2)
    spec = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(importlib.util, "find_spec", {"cutlass_library": spec}.get)
    assert cutlass_headers.find_cutlass() == (
        package / "source/include",
        package / "source/tools/util/include",
        "4.2.1",
    )

    checkout = write_cutlass(tmp_path / "third_party/cutlass", 4, 3)
    assert cutlass_headers.find_cutlass().include == checkout / "include"

    named = write_cutlass(tmp_path / "named", 5, 0)
    monkeypatch.setenv("CUTLASS_PATH", str(named))
    assert cutlass_headers.find_cutlass().include == named / "include"


def test_old_cutlass_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTLASS_PATH", str(write_cutlass(tmp_path / "old", 4, 1)))
    with pytest.raises(SystemExit, match=r"CUTLASS 4\.1\.1 in .*old is older than 4\.2; set CUT"):
        cutlass_headers.find_cutlass()


def test_wrong_cutlass_path_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="has no include/cutlass/version.h; set CUTLASS_PATH"):
        cutlass_headers.find_cutlass()


# nvcc and the host compiler


@pytest.fixture
def only_path(monkeypatch, tmp_path, no_package):
    """No nvcc but what a test writes into the folder returned, which is PATH."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cuda_toolkit, "USUAL_ROOT", tmp_path / "nothing")
    monkeypatch.setattr(cuda_toolkit, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path / "path"


def write_toolkit(root, version):
    """A folder that looks like a CUDA toolkit as pip installs it."""
    (root / "include").mkdir(parents=True)
    (root / "include/cuda_runtime.h").touch()
    (root / "lib").mkdir()
    (root / "lib/libcudart_static.a").touch()
    return write_executable(
        root / "bin/nvcc",
        f'if [ "$1" = --version ]; then echo "Cuda tools, release {version}, V1"; else\n'
        f'printf "#\\$ _HERE_={root}/bin\\n#\\$ TOP={root}/bin/..\\n" >&2; fi',
    )


def test_nvcc_is_resolved_through_a_wrapper_script(only_path, tmp_path):
    nvcc = write_toolkit(tmp_path / "cuda", "12.8")
    write_executable(only_path / "nvcc", f'exec {nvcc} "$@"')
    assert cuda_toolkit.find_cuda_toolkit() == (
        nvcc,
        tmp_path / "cuda/include",
        tmp_path / "cuda/lib/libcudart_static.a",
        (12, 8),
    )


def test_real_nvcc_is_resolved_through_a_wrapper_script(monkeypatch, tmp_path, toolkit):
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    write_executable(tmp_path / "nvcc", f'exec {toolkit.nvcc} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert cuda_toolkit.locate_nvcc() == tmp_path / "nvcc"
    assert cuda_toolkit.find_cuda_toolkit().nvcc == toolkit.nvcc


def test_cuda_home_comes_before_path(monkeypatch, only_path, tmp_path):
    write_executable(only_path / "nvcc", "exit 1")
    named = write_toolkit(tmp_path / "named", "13.0")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "named"))
    assert cuda_toolkit.find_cuda_toolkit().nvcc == named
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "wrong"))
    with pytest.raises(SystemExit, match="there is no .*wrong/bin/nvcc; unset it"):
        cuda_toolkit.find_cuda_toolkit()


def test_path_comes_before_pip_before_the_usual_root(monkeypatch, only_path, tmp_path):
    usual = write_toolkit(tmp_path / "nothing", "13.0")
    assert cuda_toolkit.find_cuda_toolkit().nvcc == usual
    pip = write_toolkit(tmp_path / "site/nvidia/cu13", "13.0")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "site/nvidia")])
    monkeypatch.setattr(importlib.util, "find_spec", {"nvidia": spec}.get)
    assert cuda_toolkit.find_cuda_toolkit().nvcc == pip
    on_path = write_toolkit(tmp_path / "other", "13.0")
    write_executable(only_path / "nvcc", f'exec {on_path} "$@"')
    assert cuda_toolkit.find_cuda_toolkit().nvcc == on_path


def test_nvcc_that_tells_nothing_is_refused(only_path):
    write_executable(only_path / "nvcc", "echo broken >&2; exit 1")
    with pytest.raises(SystemExit, match="does not tell where its toolkit is .broken.; install"):
        cuda_toolkit.find_cuda_toolkit()


def test_missing_nvcc_ends_in_one_sentence(only_path):
    with pytest.raises(SystemExit, match="nvcc was not found; install the CUDA toolkit 12.4"):
        cuda_toolkit.find_cuda_toolkit()


def test_missing_nvcc_is_asked_for_as_torch_has_cuda(only_path, monkeypatch):
    monkeypatch.setattr(cuda_toolkit, "read_cuda", lambda: (12, 8))
    with pytest.raises(
        SystemExit, match=r"toolkit 12 \(12.4 or newer\), .* 12.8, .* driver is 580"
    ):
        cuda_toolkit.find_cuda_toolkit()


def test_old_nvcc_is_refused(only_path, tmp_path, monkeypatch):
    write_toolkit(tmp_path / "cuda", "12.3")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    with pytest.raises(SystemExit, match=r"nvcc 12\.3 .* is older than 12\.4; install"):
        cuda_toolkit.find_cuda_toolkit()


def test_refused_host_compiler_ends_in_nvccs_words(monkeypatch, tmp_path, toolkit):
    monkeypatch.setattr(host_compiler, "ROOT", tmp_path)
    future = write_executable(tmp_path / "g++-99", 'exec g++ -U__GNUC__ -D__GNUC__=99 "$@"')
    with pytest.raises(SystemExit) as end:
        host_compiler.check_host_compiler(toolkit, str(future))
    assert "g++-99 (unsupported GNU version" in str(end.value)
    assert "CXX" in str(end.value) and "\n" not in str(end.value)
    with pytest.raises(SystemExit, match="does not run .*; install g\\+\\+"):
        host_compiler.check_host_compiler(toolkit, str(tmp_path / "nothing"))


def test_accepted_host_compiler_is_tried_once(monkeypatch, tmp_path):
    monkeypatch.setattr(host_compiler, "ROOT", tmp_path)
    log = tmp_path / "log"
    nvcc = write_executable(tmp_path / "nvcc", f"echo tried >> {log}")
    toolkit = cuda_toolkit.CudaToolkit(nvcc, tmp_path, tmp_path, (13, 0))
    compiler = write_executable(tmp_path / "g++", "echo version 1")
    for _ in range(2):
        host_compiler.check_host_compiler(toolkit, str(compiler))
    assert log.read_text() == "tried\n"
    write_executable(compiler, "echo version 2")
    host_compiler.check_host_compiler(toolkit, str(compiler))
    assert log.read_text() == "tried\n" * 2


# torch


@pytest.mark.parametrize(
    "version, file, said",
    [
        (None, "", "torch is not installed; run `pip install 'torch>=2.10'`"),
        ("2.9.1", "libtorch_cuda.so", "torch 2.9.1 is older than 2.10"),
        ("2.10.0+cpu", "libtorch_cpu.so", "was built without CUDA"),
    ],
)
def test_unfit_torch_ends_in_one_sentence(monkeypatch, tmp_path, version, file, said):
    install_torch(monkeypatch, tmp_path, version, file)
    with pytest.raises(SystemExit, match=re.escape(said)):
        torch_library.find_torch()


def test_fit_torch_is_found(monkeypatch, tmp_path):
    install_torch(monkeypatch, tmp_path, "2.10.0+cu130", "libtorch_cuda.so")
    found = torch_library.find_torch()
    assert found == (tmp_path / "include", tmp_path / "lib", "2.10.0+cu130")
    assert torch_library.TARGET_VERSION == "0x020a000000000000"


@pytest.mark.parametrize(
    "line, expected",
    [
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = '9.9'", (12, 8)),
        ("cuda = '13.0'", (13, 0)),
        ("cuda: Optional[str] = None", None),
        (None, None),
    ],
)
def test_cuda_of_torch_is_read_without_importing_it(monkeypatch, tmp_path, line, expected):
    install_torch(monkeypatch, tmp_path, "2.10.0", "libtorch_cuda.so")
    if line is not None:
        (tmp_path / "version.py").write_text(f"debug = False\n{line}\n")
    assert torch_library.read_cuda() == expected


def test_cuda_of_this_torch(monkeypatch):
    found = torch_library.read_cuda()
    assert (found and "{}.{}".format(*found)) == torch.version.cuda


def install_torch(monkeypatch, folder, version, file):
    (folder / "lib").mkdir()
    (folder / "lib" / file if file else folder / "lib/none").touch()
    spec = SimpleNamespace(origin=str(folder / "__init__.py")) if version else None
    monkeypatch.setattr(importlib.util, "find_spec", {"torch": spec}.get)
    monkeypatch.setattr(importlib.metadata, "version", {"torch": version}.get)


# Packages that stand in


def test_missing_packages(monkeypatch):
    monkeypatch.setattr(cutlass_headers, "locate_cutlass", lambda: None)
    monkeypatch.setattr(cuda_toolkit, "locate_nvcc", lambda: None)
    monkeypatch.setattr(cuda_toolkit, "read_cuda", lambda: (13, 2))
    both = [cutlass_headers.REQUIREMENT, cuda_toolkit.REQUIREMENT]
    assert missing_packages.missing_packages() == both
    # pip has no nvcc for a torch of CUDA 12.
    monkeypatch.setattr(cuda_toolkit, "read_cuda", lambda: (12, 8))
    assert missing_packages.missing_packages() == both[:1]
    monkeypatch.setattr(cuda_toolkit, "locate_nvcc", lambda: Path("/cuda/bin/nvcc"))
    assert missing_packages.missing_packages() == both[:1]
    monkeypatch.setenv("CUTLASS_FUSED_SKIP_KERNELS", "1")
    assert missing_packages.missing_packages() == []
