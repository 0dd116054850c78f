"""How long the build took, in the time of a machine of known speed."""

import resource
import subprocess

import pytest

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.host_compiler import name_host_compiler
from build_system.jobs import choose_jobs
from build_system.paths import BUILD_SECONDS, ROOT

MAX_SECONDS = 20 * 60  # on two cores

# CUTLASS's headers of kernels for 9.0, none of ours. Most of a build is such work: nvcc's front end
# at templates. REFERENCE_SECONDS of a core's time is what they take on the machine for which
# MAX_SECONDS was set, where a build took 1047 s: on one that built in B seconds they took T, where
# as many compilers as build were at work, and REFERENCE_SECONDS is T * 1047 / B.
REFERENCE = """\
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
"""
REFERENCE_SECONDS = 3.0
ROUNDS = 3


def read_cpu_seconds():
    """Of every process that has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_slowness(folder):
    """How many times longer than there the same work takes here; by a core's time, which other
    processes do not lengthen much, and with as many compilers at once as a build has: two threads
    of one core slow each other. The mean, as a build's time is that of many moments."""
    source, jobs = folder / "reference.cu", choose_jobs()
    source.write_text(REFERENCE)
    command = [find_cuda_toolkit().nvcc, "-ccbin", name_host_compiler(), "-O3", "-std=c++17"]
    command += ["--expt-relaxed-constexpr", "-I", find_cutlass().include, "-arch=compute_90a"]
    command = list(map(str, [*command, "-ptx", source, "-o"]))
    start = read_cpu_seconds()
    for _ in range(ROUNDS):
        compilers = [
            subprocess.Popen([*command, str(folder / f"{job}.ptx")], stderr=subprocess.DEVNULL)
            for job in range(jobs)
        ]
        assert [compiler.wait() for compiler in compilers] == [0] * jobs
    return (read_cpu_seconds() - start) / (ROUNDS * jobs * REFERENCE_SECONDS)


def test_build_time(tmp_path):
    written = ROOT / BUILD_SECONDS
    if not written.is_file():
        pytest.skip("the library was not built in this checkout")
    seconds = int(written.read_text())
    slowness = measure_slowness(tmp_path)
    assert seconds < MAX_SECONDS * slowness, f"{seconds} s, {slowness:.2f} times as slow a machine"
