"""The skeleton of SM100 kernels compiles, alone: no build has it, and nothing dispatches to it."""

import subprocess

import pytest

from build_system.architectures import ARCH_GROUPS
from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.flags import Tools, cuda_flags
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from kernels.table import ARCHS, list_files

SOURCE = """
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "cutlass_fused/gemm/sm100/kernel.hpp"
namespace cutlass_fused {
using Gemm = GemmSm100<sm100::Tile, Bf16, ScaleLeakyReLU>;
auto* const kernel = gemm_sm100<sm100::Tile, Bf16, ScaleLeakyReLU>;
Gemm::Params make_params() { return Gemm::make_params({}, {}, {}); }
}  // namespace cutlass_fused
"""


def test_it_compiles(tmp_path):
    """With the tensor cores of 10.0, results read from their memory, and TMA both ways."""
    try:
        toolkit = find_cuda_toolkit()
        tools = Tools(toolkit, find_cutlass(), None, name_host_compiler(), [])
    except SystemExit as missing:
        pytest.skip(str(missing))
    if "sm_100" not in toolkit.list_real_architectures():
        pytest.skip("this nvcc knows no sm_100")
    source = tmp_path / "sm100.cu"
    source.write_text(SOURCE)
    command = [toolkit.nvcc, *cuda_flags(tools), "-arch=compute_100a", "-ptx", source]
    command += ["-o", source.with_suffix(".ptx")]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ptx = source.with_suffix(".ptx").read_text()
    load, store = "cp.async.bulk.tensor.3d.shared", "cp.async.bulk.tensor.3d.global.shared"
    for instruction in ("tcgen05.mma", "tcgen05.ld", load, store):
        assert instruction in ptx
    assert "wgmma" not in ptx


def test_no_build_has_it():
    assert "Sm100" not in ARCHS.keys() | ARCH_GROUPS.keys()
    assert not any("sm100" in file.file_name + file.source for file in list_files())
