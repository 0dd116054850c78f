"""The built library: its size, its symbols, and the machine code of every kernel."""

import importlib.util
import json
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import cutlass_fused  # noqa: F401  (loads the library)
from build_system.architectures import parse_architectures
from build_system.paths import BUILD_SECONDS, PACKAGE, ROOT
from gemm.kernels import list_kernels

# Instructions that every kernel must hold (tensor cores; asynchronous copies to shared memory) and
# the kernels that rightly do not: plain CUDA ones, and those for rows that are aligned to 2 bytes
# only, which cp.async cannot copy.
INSTRUCTIONS = {
    "HMMA": re.compile(r"gemm_simt<|round_rows_to_tf32<"),
    "LDGSTS": re.compile(r"gemm_simt<|round_rows_to_tf32<|, 2>\("),
}
MAX_BYTES = 48 * 2**20
MAX_BUILD_SECONDS = 15 * 60

LIBRARY = ROOT / PACKAGE / "libcutlass_fused.so"
pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="the library was not built")


def run(*command):
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def cuobjdump():
    """From the CUDA toolkit, else the one that Triton brings; nvdisasm lies beside either."""
    found = shutil.which("cuobjdump")
    if found is None:
        spec = importlib.util.find_spec("triton")
        bundled = Path(spec.origin).parent / "backends/nvidia/bin/cuobjdump" if spec else None
        if bundled is None or not bundled.is_file():
            pytest.skip("no cuobjdump: neither on PATH nor in triton")
        found = bundled
    return found


@pytest.fixture(scope="module")
def real_architectures():
    """What the library says it was compiled for, as cuobjdump names it: {"sm_80", ...}."""
    archs = json.loads(torch.ops.cutlass_fused.build_info())["archs"]
    return {f"sm_{arch.number}" for arch in parse_architectures(";".join(archs))}


@pytest.fixture(scope="module")
def resources(cuobjdump):
    """{(architecture, kernel): {"REG": registers, "STACK": bytes, "LOCAL": bytes, ...}}"""
    found = {}
    arch = kernel = None
    for line in run(cuobjdump, "-res-usage", LIBRARY).splitlines():
        if match := re.match(r"arch = (\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (\S+):$", line):
            kernel = match[1]
        elif kernel is not None:
            pairs = re.findall(r"(\w+)(?:\[\d+\])?:(\d+)", line)
            found[arch, kernel] = {name: int(value) for name, value in pairs}
            kernel = None
    return found


@pytest.fixture(scope="module")
def instructions(cuobjdump, real_architectures):
    """{(architecture, kernel): the instructions of INSTRUCTIONS that it holds}, read as a stream:
    the listing has millions of lines."""
    wanted = re.compile(rf"\b({'|'.join(INSTRUCTIONS)})\b")
    found = defaultdict(set)
    for arch in sorted(real_architectures):
        command = [cuobjdump, "-sass", "-arch", arch, LIBRARY]
        with subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            for line in process.stdout:
                if "Function : " in line:
                    key = arch, line.split()[-1]
                    found[key]  # a kernel counts even if it holds none
                elif match := wanted.search(line):
                    found[key].add(match[1])
        assert process.returncode == 0
    return found


@pytest.fixture(scope="module")
def demangled(resources):
    names = sorted({kernel for _, kernel in resources})
    return dict(zip(names, run("c++filt", *names).splitlines(), strict=True))


def test_size():
    assert LIBRARY.stat().st_size < MAX_BYTES


def test_build_time():
    seconds = ROOT / BUILD_SECONDS
    if not seconds.is_file():
        pytest.skip("the library was not built in this checkout")
    assert int(seconds.read_text()) < MAX_BUILD_SECONDS


def test_needs_no_python():
    undefined = run("nm", "-D", "--undefined-only", LIBRARY)
    assert "aoti_torch" in undefined
    assert not re.findall(r"\b_?Py[A-Z_]\w*", undefined)
    assert "PyInit" not in run("nm", "-D", "--defined-only", LIBRARY)


def test_depends_on_no_shared_cuda_runtime_and_no_python():
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", LIBRARY))
    assert "libtorch_cpu.so" in needed
    assert not [name for name in needed if re.match(r"libcudart|libpython|libtorch_python", name)]


def test_every_kernel_is_there_for_every_architecture(resources, demangled, real_architectures):
    for arch in real_architectures:
        names = [demangled[kernel] for found, kernel in resources if found == arch]
        for row in list_kernels():
            kernel = re.compile(rf"gemm_{row.arch.lower()}<.*::{row.math}, .*::{row.epilogue}, 16>")
            assert any(map(kernel.search, names)), f"{arch} has no {row}"


def test_kernels_spill_nothing(resources, demangled):
    spilling = [
        f"{arch} {demangled[kernel]}: stack {usage['STACK']}, local {usage['LOCAL']} bytes"
        for (arch, kernel), usage in resources.items()
        if usage["STACK"] or usage["LOCAL"]
    ]
    assert resources
    assert not spilling, "\n".join(spilling)


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_kernels_hold(instruction, instructions, resources, demangled):
    assert instructions.keys() == resources.keys()
    without = [
        f"{arch} {demangled[kernel]}"
        for (arch, kernel), held in instructions.items()
        if instruction not in held and not INSTRUCTIONS[instruction].search(demangled[kernel])
    ]
    assert not without, "\n".join(without)
