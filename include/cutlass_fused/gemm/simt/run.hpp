// A product in plain fp32, on CUDA cores.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// y = epilogue(x @ weight.T) of fp32 matrices, or, with a K of 0, of any.
template <class Epilogue>
Status run_gemm_simt(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                     Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
