#include "cutlass_fused/gemm/simt/short_k.cuh"

namespace cutlass_fused {

Status run_bare_short_k(GemmArgs const& gemm, Device const& device, cudaStream_t stream) {
  return run_short_k_tail<NoShortKTail>(gemm, {}, device, stream);
}

}  // namespace cutlass_fused
