// Launches of the kernels that stand alone.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Whether every row starts on 16 bytes.
inline bool has_aligned_rows(void const* data, int64_t ld, DataType type) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && ld * size_of(type) % 16 == 0;
}

// Whether each row of y, contiguous, begins as far behind a boundary of 16 bytes as that of x.
inline bool has_equal_shifts(Matrix const& x, void const* y) {
  return (reinterpret_cast<uintptr_t>(x.data) - reinterpret_cast<uintptr_t>(y)) % 16 == 0 &&
         (x.ld - x.columns) * size_of(x.type) % 16 == 0;
}

// Every kernel launched by this starts while the one before it in the stream ends, where the GPU
// can do that, and therefore calls wait_for_previous_kernel() first. But normalize_strips, which
// waits for what it reads by itself, does so last; and normalize and row_softmax read rows before
// it where BehindKernel says that these are complete.
struct KernelLaunch {
  Device const& device;
  cudaStream_t stream;
  dim3 grid, block;
  size_t shared_bytes = 0;

  template <class... Params>
  Status operator()(void (*kernel)(Params...), Params... params) const {
    return launch(device.code >= 90 ? 1 : 0, [&](cudaLaunchConfig_t const& config) {
      return cudaLaunchKernelEx(&config, kernel, params...);
    });
  }
  // A kernel that was made while the program runs, of code for every GPU: it does not wait.
  template <class Params>
  Status operator()(void const* kernel, Params params) const {
    void* arguments[] = {&params};
    return launch(0, [&](cudaLaunchConfig_t const& config) {
      return cudaLaunchKernelExC(&config, kernel, arguments);
    });
  }

 private:
  template <class Call>
  Status launch(unsigned attributes, Call const& call) const {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t const config{grid, block, shared_bytes, stream, &attribute, attributes};
    return call(config) == cudaSuccess ? Status::kSuccess : Status::kCudaError;
  }
};

// Before anything is read that the kernel before it may have written, or written that it may read.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// The next kernel may be launched, to wait for this one's end. What it reads before that must have
// been written, and fenced, before this.
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace cutlass_fused
