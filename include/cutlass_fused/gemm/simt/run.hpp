// A product in plain fp32, on CUDA cores.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Whether the kernel for such a K reads fp32 matrices in either order.
constexpr int64_t kShortK = 32;
constexpr bool reads_any_major(int64_t k) { return k > 0 && k <= kShortK; }

// Whether blocks of that kernel with so many outputs all run at once, or nearly so: smaller ones
// then end earlier.
struct FewOutputs {
  static constexpr int64_t kRows = 32, kColumns = 64, kBlocksPerSm = 8;

  static bool are(int64_t m, int64_t n, Device const& device) {
    return ceil_div(m, kRows) * ceil_div(n, kColumns) <= kBlocksPerSm * device.sm_count;
  }
};

// y = epilogue(x @ weight.T) of fp32 matrices, or, with a K of 0, of any.
template <class Epilogue>
Status run_gemm_simt(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                     Device const& device, cudaStream_t stream);

// y = x @ weight.T of fp32 matrices, with such a K.
Status run_bare_short_k(GemmArgs const& gemm, Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
