"""The skeleton of SM100 kernels compiles as a build for 10.0a generates it. No other has it."""

import subprocess

import pytest

from build_system.architectures import ARCH_GROUPS, gencode_flags, parse_architectures
from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.flags import Tools, cuda_flags
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from kernels.table import ARCHS, EPILOGUES, list_files

FILES = [file for file in list_files() if file.arch == "Sm100"]
# One of them is compiled: nvcc takes half a minute.
FILE = next(file for file in FILES if "scale_leaky_relu.hpp" in file.source)
FLAGS = gencode_flags(ARCH_GROUPS["Sm100"], parse_architectures("8.0;10.0a"))


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
    source.write_text(FILE.source)
    command = [toolkit.nvcc, *cuda_flags(tools), *FLAGS, "--keep", "--keep-dir", tmp_path]
    command += ["-c", source, "-o", source.with_suffix(".o")]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert source.with_suffix(".o").stat().st_size > 0
    (ptx,) = (path.read_text() for path in tmp_path.glob("*.ptx"))
    load, store = "cp.async.bulk.tensor.3d.shared", "cp.async.bulk.tensor.3d.global.shared"
    for instruction in ("tcgen05.mma", "tcgen05.ld", load, store):
        assert instruction in ptx
    assert "wgmma" not in ptx


def test_it_is_one_tile_of_bf16():
    assert ARCHS["Sm100"] == ("Bf16",)
    lines = [line for file in FILES for line in file.lines]
    assert lines == [f"CUTLASS_FUSED_REGISTER_GEMM_SM100(Bf16, {name});" for name in EPILOGUES]


@pytest.mark.parametrize("archs", ["8.0;9.0a", "8.0", "10.0", "12.0"])
def test_no_other_build_has_it(archs):
    """tests/build_system/test_build_files.py looks at what ninja is told."""
    assert gencode_flags(ARCH_GROUPS["Sm100"], parse_architectures(archs)) == []
