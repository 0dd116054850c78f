// The split of fp32 rows into fp16 ones.
#include "cutlass_fused/gemm/fp16x3/split_rows.cuh"

#include <algorithm>

namespace cutlass_fused {

Status run_split_rows(SplitLayout const& layout, float const* from, int64_t ld, void* to,
                      Device const& device, cudaStream_t stream) {
  SplitRowsParams const params = SplitRowsParams::make(layout, from, ld, to);
  // As many threads as a row has pieces, in whole warps; several rows a block where they are short.
  int64_t const warps = ceil_div(ceil_div(layout.k, SplitBlock::kWidth), 32);
  unsigned x = 32;
  while (x < SplitBlock::kThreads && x < 32 * warps) x *= 2;
  dim3 const block(x, SplitBlock::kThreads / x);
  dim3 const grid(unsigned(ceil_div(layout.rows, block.y)));
  bool const aligned = has_aligned_rows(from, ld, DataType::kFloat32);
  auto* const kernel = layout.has_low
                           ? (aligned ? split_rows<true, true> : split_rows<true, false>)
                           : (aligned ? split_rows<false, true> : split_rows<false, false>);
  return KernelLaunch{device, stream, grid, block}(kernel, params);
}

}  // namespace cutlass_fused
