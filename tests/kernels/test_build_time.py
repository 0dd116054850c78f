"""How long the build took, in the time of a machine of known speed."""

import resource
import subprocess

import pytest

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.host_compiler import name_host_compiler
from build_system.paths import BUILD_SECONDS, ROOT

MAX_SECONDS = 20 * 60  # on two cores

# CUTLASS's headers of kernels for 9.0, none of ours. Most of a build is such work: nvcc's front end
# at templates. A machine took 7.2 s of a core's time for them and, beside other work, 2788 s for a
# build, so some 2500 s alone. One that builds in 1047 s, as that for which MAX_SECONDS was set, is
# taken to need REFERENCE_SECONDS.
REFERENCE = """\
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
"""
REFERENCE_SECONDS = 3.0


def read_cpu_seconds():
    """Of every process that has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_slowness(folder):
    """How many times longer than there the same work takes here; by a core's time, which other
    processes do not lengthen much. The best of three."""
    source = folder / "reference.cu"
    source.write_text(REFERENCE)
    command = [find_cuda_toolkit().nvcc, "-ccbin", name_host_compiler(), "-O3", "-std=c++17"]
    command += ["--expt-relaxed-constexpr", "-I", find_cutlass().include, "-arch=compute_90a"]
    command += ["-ptx", source, "-o", folder / "reference.ptx"]
    taken = []
    for _ in range(3):
        start = read_cpu_seconds()
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        taken.append(read_cpu_seconds() - start)
    return min(taken) / REFERENCE_SECONDS


def test_build_time(tmp_path):
    written = ROOT / BUILD_SECONDS
    if not written.is_file():
        pytest.skip("the library was not built in this checkout")
    seconds = int(written.read_text())
    slowness = measure_slowness(tmp_path)
    assert seconds < MAX_SECONDS * slowness, f"{seconds} s, {slowness:.2f} times as slow a machine"
