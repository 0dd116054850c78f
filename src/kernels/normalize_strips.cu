// Launches of the kernel that normalizes z while its product runs.
#include "cutlass_fused/norm/normalize_strips.cuh"

namespace cutlass_fused {

template <DataType kIn>
Status run_normalize_strips(Matrix const& z, Ranges const& ranges, int tile_columns,
                            void const* parts, StripCounters const& counters, Vector const& gamma,
                            Vector const& beta, float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, StoredShifts const& stored, void* y,
                            Device const& device, cudaStream_t stream) {
  int64_t* const count = running.cumulative ? nullptr : running.num_batches_tracked;
  MergeStatisticsParams const merge{z,
                                    ranges,
                                    PartialsFrom::kColumns,
                                    static_cast<float2 const*>(parts),
                                    gamma,
                                    beta,
                                    eps,
                                    running,
                                    statistics,
                                    count,
                                    stored};
  NormalizeStripsParams const params{
      merge, tile_columns, StripUnits::make(z.rows, z.columns), counters, 1.0 / double(z.rows), y};
  dim3 const grid(unsigned(StripBlock::kBlocks * device.sm_count));
  dim3 const block(StripBlock::kLanes, StripBlock::kRows);
  return KernelLaunch{device, stream, grid, block}(normalize_strips<kIn>, params);
}

#define CUTLASS_FUSED_INSTANTIATE_NORMALIZE_STRIPS(TYPE)                                           \
  template Status run_normalize_strips<DataType::TYPE>(                                            \
      Matrix const&, Ranges const&, int, void const*, StripCounters const&, Vector const&,         \
      Vector const&, float, RunningStatistics const&, BatchStatistics const&, StoredShifts const&, \
      void*, Device const&, cudaStream_t)
CUTLASS_FUSED_INSTANTIATE_NORMALIZE_STRIPS(kFloat16);
CUTLASS_FUSED_INSTANTIATE_NORMALIZE_STRIPS(kBFloat16);

}  // namespace cutlass_fused
