// The split of fp32 rows into fp16 ones.
#include "cutlass_fused/gemm/fp16x3/split_rows.cuh"
#include "cutlass_fused/gemm/renew_rows.hpp"

#include <algorithm>

namespace cutlass_fused {
namespace {

using Kernel = void (*)(SplitRowsParams);

template <bool kLow, bool kAligned, Split kSplit>
Kernel find_kernel(int held) {
  return held == SplitBlock::kHeld ? split_rows<kLow, kAligned, SplitBlock::kHeld, kSplit>
                                   : split_rows<kLow, kAligned, SplitBlock::kHeldOfLong, kSplit>;
}

template <bool kLow, bool kAligned>
Kernel find_kernel(int held, Split split) {
  switch (split) {
    case Split::kPlain:
      return find_kernel<kLow, kAligned, Split::kPlain>(held);
    case Split::kFolding:
      return find_kernel<kLow, kAligned, Split::kFolding>(held);
    case Split::kRenewing:
      return find_kernel<kLow, kAligned, Split::kRenewing>(held);
  }
  return nullptr;
}

template <bool kLow>
Kernel find_kernel(int held, bool aligned, Split split) {
  return aligned ? find_kernel<kLow, true>(held, split) : find_kernel<kLow, false>(held, split);
}

Status launch(SplitLayout const& layout, SplitRowsParams const& params, Split split,
              Device const& device, cudaStream_t stream) {
  // As many threads as hold a row, in whole warps; several rows a block where they are short.
  int const held = layout.k > SplitBlock::kLong ? SplitBlock::kHeldOfLong : SplitBlock::kHeld;
  int64_t const warps = ceil_div(layout.k, int64_t(held) * SplitBlock::kWidth * 32);
  unsigned x = 32;
  while (x < SplitBlock::kThreads && x < 32 * warps) x *= 2;
  dim3 const block(x, SplitBlock::kThreads / x);
  dim3 const grid(unsigned(ceil_div(layout.rows, block.y)));
  bool const aligned = has_aligned_rows(params.from, params.ld, DataType::kFloat32);
  Kernel const kernel = layout.has_low ? find_kernel<true>(held, aligned, split)
                                       : find_kernel<false>(held, aligned, split);
  return KernelLaunch{device, stream, grid, block}(kernel, params);
}

}  // namespace

Status run_split_rows(SplitLayout const& layout, float const* from, int64_t ld, void* to,
                      RowScale const* folded, ToClear const& to_clear, Device const& device,
                      cudaStream_t stream) {
  SplitRowsParams params = SplitRowsParams::make(layout, from, ld, to, folded);
  params.to_clear = to_clear;
  return launch(layout, params, folded == nullptr ? Split::kPlain : Split::kFolding, device,
                stream);
}

Status run_renew_rows(MarkedSplit const& split, float const* from, int64_t ld, void* kept,
                      bool is_new, Device const& device, cudaStream_t stream) {
  auto* const bytes = static_cast<char*>(kept);
  SplitRowsParams params = SplitRowsParams::make(
      split.layout, from, ld, bytes + MarkedSplit::marks_bytes(split.layout.rows), nullptr);
  params.marks = reinterpret_cast<uint64_t*>(bytes);
  params.is_new = is_new;
  return launch(split.layout, params, Split::kRenewing, device, stream);
}

}  // namespace cutlass_fused
