// What encoding a TMA descriptor takes, and whether it succeeded.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cute/arch/copy_sm90_desc.hpp"

namespace cutlass_fused {

// The driver encodes for the context that is current on the calling thread. A new thread has none
// until the runtime gives it the GPU's own; one that is there, such as a green context, stays.
inline bool bind_context(int device) {
  using GetCurrent = CUresult (*)(CUcontext*);
  static GetCurrent const get_current = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    bool const asked = cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000,
                                                        cudaEnableDefault, &found) == cudaSuccess;
#else
    bool const asked = cudaGetDriverEntryPoint("cuCtxGetCurrent", &function, cudaEnableDefault,
                                               &found) == cudaSuccess;
#endif
    return asked && found == cudaDriverEntryPointSuccess ? reinterpret_cast<GetCurrent>(function)
                                                         : nullptr;
  }();
  CUcontext context = nullptr;
  if (get_current != nullptr && get_current(&context) == CUDA_SUCCESS && context != nullptr) {
    return true;
  }
  return cudaSetDevice(device) == cudaSuccess;
}

// Where CUTLASS could not make a descriptor it says so on stderr, returns one of zeros (or aborts,
// in a build without NDEBUG), and a launch with it is an illegal instruction.
template <class TmaCopy>
bool is_encoded(TmaCopy const& copy) {
  auto const* const bytes = reinterpret_cast<char const*>(copy.get_tma_descriptor());
  return std::any_of(bytes, bytes + sizeof(cute::TmaDescriptor),
                     [](char byte) { return byte != 0; });
}

}  // namespace cutlass_fused
