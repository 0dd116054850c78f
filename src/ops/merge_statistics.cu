// The batch-norm kernels that no type of x changes.
#include "cutlass_fused/kernel/launch.cuh"
#include "cutlass_fused/kernel/merge_statistics.cuh"

namespace cutlass_fused {

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
