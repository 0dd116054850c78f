// The split of a weight whose parts are kept, where it has changed.
#include "cutlass_fused/gemm/fp16x3_kept/split_again.cuh"

#include <algorithm>

namespace cutlass_fused {
namespace {

Status launch_check(SplitLayout const& layout, float const* from, ChecksumState* state,
                    Device const& device, cudaStream_t stream) {
  using Block = CheckBlock;
  auto const pieces = uint32_t(layout.rows * layout.k / 4);
  int64_t const needed = ceil_div(int64_t(pieces), int64_t(Block::kThreads) * Block::kLoads);
  int64_t const resident = int64_t(Block::kBlocksPerSm) * device.sm_count;
  dim3 const grid(unsigned(std::min(needed, resident)));
  auto const* const weight = reinterpret_cast<uint4 const*>(from);
  return KernelLaunch{device, stream, grid, dim3(Block::kThreads)}(check_weight, weight, pieces,
                                                                   state);
}

template <bool kLow>
auto find_kernel(int held) {
  return held == SplitBlock::kHeld ? split_rows_again<kLow, SplitBlock::kHeld>
                                   : split_rows_again<kLow, SplitBlock::kHeldOfLong>;
}

}  // namespace

Status run_split_again(SplitLayout const& layout, float const* from, void* to, ChecksumState* state,
                       bool always, Device const& device, cudaStream_t stream) {
  if (!can_split_again(layout, from)) return Status::kNoKernel;
  if (!always) {
    Status const checked = launch_check(layout, from, state, device, stream);
    if (checked != Status::kSuccess) return checked;
  }
  SplitRowsParams const matrix = SplitRowsParams::make(layout, from, layout.k, to, nullptr);
  SplitShape const shape = SplitShape::make(layout.k);
  int64_t const blocks = ceil_div(layout.rows, int64_t(shape.block.y));
  int64_t const resident = int64_t(SplitAgain::kBlocksPerSm) * device.sm_count;
  SplitAgainParams const params{matrix, unsigned(blocks), state, always};
  dim3 const grid(unsigned(std::min(blocks, resident)));
  auto* const kernel =
      layout.has_low ? find_kernel<true>(shape.held) : find_kernel<false>(shape.held);
  return KernelLaunch{device, stream, grid, shape.block}(kernel, params);
}

}  // namespace cutlass_fused
