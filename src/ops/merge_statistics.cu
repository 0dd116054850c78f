// The batch-norm kernels that no type of x changes, and how rows are cut into ranges.
#include <algorithm>

#include "cutlass_fused/kernel/launch.cuh"
#include "cutlass_fused/kernel/merge_statistics.cuh"

namespace cutlass_fused {

Ranges choose_ranges(Matrix const& x, Device const& device) {
  // At least 32 rows to a block, four to a thread, and at most 512, so that a thread's fp32 sums
  // stay short. In between as many blocks as are fastest on an H200: four are resident on an SM,
  // and more of them would cost the merge more than the last wave does.
  constexpr int64_t kLeastRows = 32, kMostRows = 512;
  int64_t const blocks_per_sm = 4 * size_of(x.type);
  int64_t const column_blocks = ceil_div(x.columns, 512 / size_of(x.type));
  int64_t const wanted = ceil_div(blocks_per_sm * device.sm_count, column_blocks);
  // A grid has at most 65535 blocks along y; that bound comes last.
  int64_t const rows = std::max(std::clamp(ceil_div(x.rows, wanted), kLeastRows, kMostRows),
                                ceil_div(x.rows, 65535));
  return {ceil_div(x.rows, rows), rows};
}

Status run_merge_statistics(Matrix const& x, Ranges const& ranges, void const* workspace,
                            Vector const& gamma, float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, Device const& device,
                            cudaStream_t stream) {
  MergeStatisticsParams const params{
      x.rows, x.columns, ranges,  static_cast<float2 const*>(workspace),
      gamma,  eps,       running, statistics};
  dim3 const grid(unsigned(ceil_div(x.columns, MergeBlock::kLanes)));
  dim3 const block(MergeBlock::kLanes, MergeBlock::kSlices);
  return KernelLaunch{device, stream, grid, block}(merge_statistics, params);
}

Status run_count_batch(int64_t* num_batches_tracked, Device const& device, cudaStream_t stream) {
  return KernelLaunch{device, stream, dim3(1), dim3(1)}(count_batch, num_batches_tracked);
}

}  // namespace cutlass_fused
