"""Small open kernels, compiled by NVRTC from the calls that all open kernels consist of."""

import os
import pathlib
import subprocess

import pytest
from host_program import compile_host_program
from nvrtc import compile_to_ptx, find_folders

from build_system import open_kernels
from build_system.paths import ROOT

SLOTS, TYPES, OUTPUTS = 12, 14, 3
FIRST_COLUMN, FIRST_SCALAR, FIRST_TILE = 4, 6, 10
# What stands in types of slots and outputs.
CODES = {None: "0", "float32": "1", "float16": "2", "bfloat16": "3", "number": "4"}

# All that calls.hpp needs of the standard library, which NVRTC has none of.
CSTDINT = """\
#pragma once
typedef long long int64_t;
typedef unsigned int uint32_t;
typedef unsigned short uint16_t;
"""
KERNEL = """\
#include "cutlass_fused/epilogue/open/calls.hpp"

using namespace cutlass_fused::open;

struct Params {{
  float const* acc;
  float* y;
  void const* data[kSlots];
  void* outputs[kOutputs - 1];
  long long count;
}};

template <int kSlot>
__device__ float read(Params const& params, long long at) {{
  if constexpr (kSlot >= kFirstTile) {{
    return load<kSlot>(params.data[kSlot], at, at < params.count);
  }} else {{
    return convert<kSlot>(fetch<kSlot>(params.data[kSlot], kSlot < kFirstScalar ? at : 0, 7));
  }}
}}

extern "C" __global__ void __launch_bounds__(128, 1) {name}(
    __grid_constant__ Params const params) {{
#pragma unroll
  for (int i = 0; i < {calls}; ++i) {{
    long long const at = threadIdx.x + 128 * i;
    float const slots[] = {{{reads}}};
    float y[kOutputs];
    apply(params.acc[at], slots, y);
    params.y[at] = y[0];
    bool const is_in = at < params.count;
    store<kFirstOutput + 1>(params.outputs[0], at, is_in, y[1]);
    store<kFirstOutput + 2>(params.outputs[1], at, is_in, y[2]);
  }}
}}
"""
PARAM_BYTES = 8 * (2 + SLOTS + OUTPUTS - 1 + 1)


def make_kernel(folder, name, calls=1, arch="compute_90a"):
    """The PTX of a kernel that calls the program so many times, as it is packed."""
    (folder / "cstdint").write_text(CSTDINT)
    reads = ", ".join(f"read<{slot}>(params, at)" for slot in range(SLOTS))
    source = KERNEL.format(name=name, calls=calls, reads=reads)
    options = (f"-arch={arch}", "--std=c++17", f"-I{ROOT / 'include'}", f"-I{folder}")
    ptx, log = compile_to_ptx(source, options)
    assert ptx is not None, log
    # NVRTC keeps constants of the host's, which nvcc does not.
    lines = (line for line in ptx.splitlines() if not line.startswith(".global "))
    return open_kernels.split("\n".join(lines))[name]


def compile_link_program(name, folder, *options):
    """tests/host/link/<name>.cpp"""
    compile_host_program(f"link/{name}", folder, options=("-I", ROOT / "src", *options, "-ldl"))
    return folder / name


class Assembler:
    """Runs tests/host/link/assemble.cpp on a pack."""

    def __init__(self, program, pack, cache):
        self.program, self.pack, self.cache = program, pathlib.Path(pack), cache

    def __call__(self, *requests, has_compiler=True):
        """Of each (kernel, operands, outputs, text), and perhaps the compute capability, and
        whether slot 10 comes by TMA: {name, bytes, kept, ms, error, cubin}, or "no room"."""
        environment = {"CUTLASS_FUSED_CACHE_DIR": str(self.cache)}
        if has_compiler:
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(find_folders())
        lines = [self._write(*request) for request in requests]
        folder = self.cache.parent
        result = subprocess.run(
            [self.program, self.pack, folder],
            input="".join(f"{line}\n" for line in lines),
            env=environment,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        answers = result.stdout.split("\n====\n")[:-1]
        assert len(answers) == len(requests)
        return [self._read(answer, folder / f"{i}.cubin") for i, answer in enumerate(answers)]

    @staticmethod
    def _write(kernel, operands, outputs, text, capability=90, by_tma=False):
        return " ".join(
            [kernel, str(capability), str(int(by_tma)), ",".join(operands) or "-"]
            + [",".join(outputs), text.encode().hex()]
        )

    @staticmethod
    def _read(answer, cubin):
        if answer == "no room":
            return answer
        name, size, kept, ms, *error = answer.split("\n")
        return {
            **{"name": name, "bytes": int(size), "kept": kept == "kept", "ms": float(ms)},
            **{"error": "\n".join(error), "cubin": cubin.read_bytes()},
        }


def require_nvrtc():
    if not find_folders():
        pytest.skip("no libnvrtc beside torch")
