"""The step of the build that links common epilogues."""

import hashlib
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from build_system import ninja_file, paths
from build_system.architectures import parse_architectures
from build_system.cuda_toolkit import CudaToolkit
from build_system.cutlass_headers import CutlassHeaders
from build_system.flags import Tools
from build_system.torch_library import TorchLibrary
from cutlass_fused.build_epilogues import pack as common_kernels


def test_cached():
    """A file of the cache, as src/link/kept/disk_cache.cpp writes it."""
    parts = [b"the key\n", b"the code"]
    sized = b"".join(len(each).to_bytes(8, sys.byteorder) + each for each in parts)
    assert common_kernels.read_cached(b"cutlass_fused kernel 1\n" + sized + b"sum") == (*parts,)
    with pytest.raises(ValueError, match="another format"):
        common_kernels.read_cached(b"cutlass_fused kernel 2\n" + sized)


def test_pack():
    """As src/link/kept/common_kernels.hpp says."""
    data = common_kernels.pack({b"b": b"two", b"a": b"one" * 9})
    head, _, rest = data.partition(b"\n\n")
    assert rest[:32] == hashlib.sha256(head + b"\n\n").digest()
    first, *lines = head.decode().splitlines()
    assert first == "cutlass_fused common kernels 2" and lines == sorted(lines)
    contents, at = {}, 32
    for line in lines:
        key, size, packed, content = line.split()
        unpacked = zlib.decompress(rest[at : at + int(packed)])
        assert len(unpacked) == int(size) and hashlib.sha256(unpacked).hexdigest() == content
        contents[key] = unpacked
        at += int(packed)
    assert at == len(rest)
    assert contents[hashlib.sha256(b"a").hexdigest()] == b"one" * 9


def test_without_library(tmp_path):
    """Nothing is written, and what an earlier build has left is gone."""
    out = tmp_path / "common_kernels.bin"
    out.write_bytes(b"old")
    command = [sys.executable, "-m", "cutlass_fused.build_epilogues.pack", out]
    environment = os.environ | {"CUTLASS_FUSED_LIBRARY": str(tmp_path / "none.so")}
    environment["PYTHONPATH"] = str(paths.ROOT)
    command = list(map(str, command))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and not out.exists()
    assert "common_kernels.bin is left out: there is no file" in done.stdout


def test_edge():
    """Behind the library's link; again when what traces the epilogues has changed."""
    tools = Tools(
        CudaToolkit(Path("/nvcc"), Path("/include"), Path("/libcudart.a"), (13, 0)),
        CutlassHeaders(Path("/cutlass"), Path("/util"), "4.2.0"),
        TorchLibrary(Path("/torch/include"), Path("/torch/lib"), "2.11.0"),
        "g++",
        parse_architectures("8.0;9.0a"),
    )
    text = ninja_file.format_ninja(tools, [])
    block = text.partition(f"build {paths.COMMON_KERNELS}: common ")[2].partition("\n")[0]
    inputs, _, sources = block.partition(" | ")
    assert inputs.split() == [str(paths.LIBRARY), str(paths.OPEN_KERNELS)]
    assert "cutlass_fused/programs/common.py" in sources.split()
    assert all((paths.ROOT / source).is_file() for source in sources.split())
    command = text.partition("rule common\n")[2].partition("\n")[0]
    assert f"CUTLASS_FUSED_LIBRARY={paths.LIBRARY} " in command
    assert command.endswith(" -m cutlass_fused.build_epilogues.pack $out")
