// The split of fp32 rows into fp16 ones.
#include "cutlass_fused/gemm/fp16x3/split_rows.cuh"

#include <algorithm>

namespace cutlass_fused {
namespace {

using Kernel = void (*)(SplitRowsParams);

template <bool kLow, bool kAligned, bool kFolds>
Kernel find_kernel(int held) {
  return held == SplitBlock::kHeld ? split_rows<kLow, kAligned, SplitBlock::kHeld, kFolds>
                                   : split_rows<kLow, kAligned, SplitBlock::kHeldOfLong, kFolds>;
}

template <bool kLow>
Kernel find_kernel(int held, bool aligned, bool folds) {
  if (folds)
    return aligned ? find_kernel<kLow, true, true>(held) : find_kernel<kLow, false, true>(held);
  return aligned ? find_kernel<kLow, true, false>(held) : find_kernel<kLow, false, false>(held);
}

}  // namespace

Status run_split_rows(SplitLayout const& layout, float const* from, int64_t ld, void* to,
                      RowScale const* folded, ToClear const& to_clear, Device const& device,
                      cudaStream_t stream) {
  SplitRowsParams params = SplitRowsParams::make(layout, from, ld, to, folded);
  params.to_clear = to_clear;
  // As many threads as hold a row, in whole warps; several rows a block where they are short.
  int const held = layout.k > SplitBlock::kLong ? SplitBlock::kHeldOfLong : SplitBlock::kHeld;
  int64_t const warps = ceil_div(layout.k, int64_t(held) * SplitBlock::kWidth * 32);
  unsigned x = 32;
  while (x < SplitBlock::kThreads && x < 32 * warps) x *= 2;
  dim3 const block(x, SplitBlock::kThreads / x);
  dim3 const grid(unsigned(ceil_div(layout.rows, block.y)));
  bool const aligned = has_aligned_rows(from, ld, DataType::kFloat32);
  Kernel const kernel = layout.has_low ? find_kernel<true>(held, aligned, folded != nullptr)
                                       : find_kernel<false>(held, aligned, folded != nullptr);
  return KernelLaunch{device, stream, grid, block}(kernel, params);
}

}  // namespace cutlass_fused
