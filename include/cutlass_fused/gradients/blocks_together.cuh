// Blocks that add up together: what one has in its shared memory the others read. They are those of
// a cluster on GPUs that have clusters; elsewhere a block is alone.
#pragma once

#include "cutlass_fused/common/bulk_copy_sm90.cuh"
#include "cutlass_fused/common/launch.cuh"

namespace cutlass_fused {

// More are not portable.
constexpr int kMostBlocksTogether = 8;

#ifdef __CUDACC__  // a test on the host has its own

struct BlocksTogether {
  int count = 1, rank = 0;

  __device__ __forceinline__ BlocksTogether() {
#if __CUDA_ARCH__ >= 900
    count = blocks_of_cluster();
    rank = rank_in_cluster();
#endif
  }

  // This block's own of what is declared as shared.
  template <class T>
  __device__ __forceinline__ T& own(T& shared) const {
    return shared;
  }

  // What a block had in `shared` when all of them met.
  __device__ __forceinline__ float read(float const& shared, int block) const {
#if __CUDA_ARCH__ >= 900
    if (count == 1) return shared;
    float value;
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [there];\n"
        "}"
        : "=f"(value)
        : "r"(shared_address(&shared)), "r"(block)
        : "memory");
    return value;
#else
    return shared;
#endif
  }

  // All threads of all blocks.
  __device__ __forceinline__ void meet() const {
#if __CUDA_ARCH__ >= 900
    if (count > 1) {
      meet_in_cluster();
      return;
    }
#endif
    __syncthreads();
  }

  // No block may end while others read what it has: each thread says when it has read, and waits
  // for the others at its end. Relaxed: nothing that was written is waited for.
  __device__ __forceinline__ void say_that_it_has_read() const {
#if __CUDA_ARCH__ >= 900
    if (count > 1) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
  }
  __device__ __forceinline__ void wait_for_readers() const {
#if __CUDA_ARCH__ >= 900
    if (count > 1) asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
  }
};

#endif

// A launch in which so many neighbouring blocks are together. kNoKernel: the GPU has no room for
// them, and nothing was launched.
template <class... Params>
Status launch_together(KernelLaunch const& launch, int blocks, void (*kernel)(Params...),
                       Params... params) {
  if (blocks == 1) return launch(kernel, params...);
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(blocks), 1, 1};
  cudaLaunchConfig_t const config{launch.grid,   launch.block, launch.shared_bytes,
                                  launch.stream, attributes,   2};
  cudaError_t const error = cudaLaunchKernelEx(&config, kernel, params...);
  if (error == cudaSuccess) return Status::kSuccess;
  if (error != cudaErrorInvalidClusterSize && error != cudaErrorLaunchOutOfResources) {
    return Status::kCudaError;
  }
  cudaGetLastError();  // clears it
  return Status::kNoKernel;
}

}  // namespace cutlass_fused
