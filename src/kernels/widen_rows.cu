// The copy of 16-bit rows that a product with an fp32 weight reads.
#include "cutlass_fused/gemm/mixed/widen_rows.cuh"

#include <algorithm>

namespace cutlass_fused {

Status run_widen_rows(Matrix const& from, float* to, Device const& device, cudaStream_t stream) {
  if (from.rows == 0 || from.columns == 0) return Status::kSuccess;
  constexpr int kBlocksPerSm = 8;
  // As many threads as a row has pieces, in whole warps; several rows a block where they are short.
  int64_t const warps = ceil_div(ceil_div(from.columns, int64_t(WidenBlock::kWidth)), int64_t(32));
  unsigned x = 32;
  while (x < WidenBlock::kThreads && x < 32 * warps) x *= 2;
  dim3 const block(x, WidenBlock::kThreads / x);
  dim3 const grid(unsigned(std::min<int64_t>(ceil_div(from.rows, int64_t(block.y)),
                                             int64_t(kBlocksPerSm) * device.sm_count)));
  bool const aligned = has_aligned_rows(from.data, from.ld, from.type);
  return for_type(from.type, [&](auto type) {
    if constexpr (size_of(type()) == 2) {
      using T = Storage<type()>;
      WidenRowsParams<T> const params{from.rows, from.columns, static_cast<T const*>(from.data),
                                      from.ld,   to,           pitch_of_widened(from.columns)};
      auto* const kernel = aligned ? widen_rows<T, true> : widen_rows<T, false>;
      return KernelLaunch{device, stream, grid, block}(kernel, params);
    }
    return Status::kNoKernel;
  });
}

}  // namespace cutlass_fused
