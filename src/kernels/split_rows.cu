// The split of fp32 rows into fp16 ones.
#include "cutlass_fused/gemm/fp16x3/split_rows.cuh"

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
  SplitShape const shape = SplitShape::make(layout.k);
  dim3 const grid(unsigned(ceil_div(layout.rows, shape.block.y)));
  bool const aligned = has_aligned_rows(from, ld, DataType::kFloat32);
  Kernel const kernel = layout.has_low ? find_kernel<true>(shape.held, aligned, folded != nullptr)
                                       : find_kernel<false>(shape.held, aligned, folded != nullptr);
  return KernelLaunch{device, stream, grid, shape.block}(kernel, params);
}

}  // namespace cutlass_fused
