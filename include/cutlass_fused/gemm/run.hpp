// Declarations only: what an op calls. The definitions are instantiated in generated files
// (src/gemm/kernels.py), so that no op file includes a kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/plan/kernel_choice.hpp"
#include "cutlass_fused/common/math.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// What a call needs beside its tensors.
struct Launch {
  Device device;
  void* workspace;  // workspace_size() bytes, 256-byte aligned; may hold anything
  cudaStream_t stream;
};

// Bytes of device memory that run_gemm needs for this problem (stream-K's partial sums); 0 for
// most.
template <class Arch, class Math, class Epilogue>
size_t workspace_size(GemmArgs const& gemm, Choice const& choice, Device const& device);

// Launches y = epilogue(x @ weight.T) on the stream, by the kernel that was chosen: the one that
// the workspace was made for. Never synchronises.
template <class Arch, class Math, class Epilogue>
Status run_gemm(GemmArgs const& gemm, Choice const& choice, typename Epilogue::Args const& epilogue,
                Launch const& launch);

}  // namespace cutlass_fused
