"""Kernels with a fault each, which a sanitizer must find: compiled while they run.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck \\
        python tests/helpers/sanitizing/planted_kernels.py overrun
"""

import sys
from typing import NamedTuple

from fill_memory import fill_new_memory

COUNT = 256


class Planted(NamedTuple):
    """A kernel of one block, and the tool that finds what is wrong. Its name begins as those of the
    library do, which some tools are told to look at alone."""

    tool: str
    source: str


PLANTED = {
    "overrun": Planted(
        "memcheck",
        """
        extern "C" __global__ void cutlass_fused_overrun(int* x, int count) {
          x[threadIdx.x + 1] = count;  // the last thread writes behind the end
        }
        """,
    ),
    "race": Planted(
        "racecheck",
        """
        extern "C" __global__ void cutlass_fused_race(int* x, int count) {
          __shared__ int shared[256];
          shared[threadIdx.x] = x[threadIdx.x];
          // No barrier: another warp may not have written yet.
          x[threadIdx.x] = shared[count - 1 - threadIdx.x];
        }
        """,
    ),
    "missing_wait": Planted(
        "racecheck",
        """
        extern "C" __global__ void cutlass_fused_missing_wait(int* x, int count) {
          __shared__ __align__(16) int shared[256];
          unsigned const to = (unsigned)__cvta_generic_to_shared(shared + threadIdx.x);
          asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + threadIdx.x));
          asm volatile("cp.async.commit_group;");
          // No wait for the copy.
          __syncthreads();
          x[threadIdx.x] = shared[count - 1 - threadIdx.x];
          asm volatile("cp.async.wait_all;");
        }
        """,
    ),
    "unwritten": Planted(
        "initcheck",
        """
        extern "C" __global__ void cutlass_fused_unwritten(int* x, int count) {
          x[threadIdx.x] = x[threadIdx.x] + count;  // nothing has written x
        }
        """,
    ),
    "unfilled": Planted(
        "fill",
        """
        extern "C" __global__ void cutlass_fused_unfilled(int* x, int count) {
          float* const numbers = reinterpret_cast<float*>(x);
          numbers[threadIdx.x] = 2.0f * numbers[threadIdx.x];  // nothing has written x
        }
        """,
    ),
    "wrong_barrier": Planted(
        "synccheck",
        """
        extern "C" __global__ void cutlass_fused_wrong_barrier(int* x, int count) {
          if (threadIdx.x < 16) __syncwarp(0xffff0000u);  // of threads that do not come
          x[threadIdx.x] = count;
        }
        """,
    ),
}


def main(name: str) -> None:
    import torch

    if PLANTED[name].tool == "fill":
        fill_new_memory()
    # Of the size of the allocation: what lies behind it belongs to nobody.
    x = torch.empty(COUNT, dtype=torch.float32, device="cuda").view(torch.int32)
    if name not in ("unwritten", "unfilled"):
        x.zero_()
    kernel = torch.cuda._compile_kernel(PLANTED[name].source, f"cutlass_fused_{name}")
    kernel((1, 1, 1), (COUNT, 1, 1), (x, COUNT))
    torch.cuda.synchronize()
    print(f"{name}: launched")
    if PLANTED[name].tool == "fill" and x.view(torch.float32).isnan().any():
        print("========= ERROR SUMMARY: 1 error")  # as the tools tell it
        sys.exit(86)


if __name__ == "__main__":
    main(sys.argv[1])
