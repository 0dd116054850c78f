// The batch-norm kernels that no type of x changes.
#include "cutlass_fused/gemm/batch_norm.hpp"
#include "cutlass_fused/norm/statistics/clear_parts.cuh"
#include "cutlass_fused/norm/statistics/merge_statistics.cuh"

namespace cutlass_fused {

Status run_merge_statistics(Matrix const& x, Ranges const& ranges, PartialsFrom from,
                            void const* workspace, Vector const& gamma, Vector const& beta,
                            float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, StoredShifts const& stored,
                            Device const& device, cudaStream_t stream) {
  MergeStatisticsParams const params =
      make_merge_params(x, ranges, from, workspace, gamma, beta, eps, running, statistics, stored);
  dim3 const grid(unsigned(ceil_div(x.columns, MergeBlock::kLanes)));
  dim3 const block(MergeBlock::kLanes, MergeBlock::kSlices);
  return KernelLaunch{device, stream, grid, block}(merge_statistics, params);
}

Status run_count_batch(int64_t* num_batches_tracked, Device const& device, cudaStream_t stream) {
  return KernelLaunch{device, stream, dim3(1), dim3(1)}(count_batch, num_batches_tracked);
}

Status run_clear_parts(void* parts, size_t bytes, int64_t* num_batches_tracked,
                       Device const& device, cudaStream_t stream) {
  int64_t const count = bytes / sizeof(uint64_t);
  dim3 const grid(unsigned(ceil_div(count, ClearParts::kThreads * ClearParts::kOfThread)));
  return KernelLaunch{device, stream, grid, dim3(ClearParts::kThreads)}(
      clear_parts, static_cast<uint64_t*>(parts), count, num_batches_tracked);
}

}  // namespace cutlass_fused
