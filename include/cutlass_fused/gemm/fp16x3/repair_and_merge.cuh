// repair_rows and merge_statistics in one kernel: each block repairs the columns whose statistics
// it then merges. Hardly ever is there anything to repair, and a kernel of its own that finds
// nothing delays what follows the product.
#pragma once

#include "cutlass_fused/norm/statistics/merge_statistics.cuh"
#include "cutlass_fused/gemm/fp16x3/repair_tile.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct RepairAndMergeParams {
  RepairRowsParams<Epilogue> repair;
  MergeStatisticsParams merge;
};

using MergedBlock = SimtBlockOf<MergeBlock::kLanes>;

// All threads of a block call it, for the columns from n0 on. Out of line: hardly ever is it
// called.
template <class Epilogue>
__device__ __noinline__ void repair_columns(RepairRowsParams<Epilogue> const& params, int64_t n0,
                                            RepairMask<MergedBlock>& mask,
                                            RepairShared<MergedBlock>& shared) {
  using Tile = RepairTile<Epilogue, MergedBlock>;
  for (int64_t m0 = 0; m0 < params.gemm.m; m0 += MergedBlock::kRows) {
    Tile const tile{params, mask, m0, n0};
    if (!__syncthreads_or(tile.has_lost(int(threadIdx.x) % Tile::kOperandRows))) continue;
    tile.find();
    if (params.gemm.weight == nullptr) {
      tile.repair_named(params.split_weight, shared);
    } else {
      tile.repair_named(params.weight, shared);
    }
  }
}

template <class Epilogue>
__global__ void __launch_bounds__(MergedBlock::kThreads, 3)
    repair_and_merge(__grid_constant__ RepairAndMergeParams<Epilogue> const params) {
  static_assert(MergedBlock::kThreads == MergeBlock::kThreads);
  __shared__ RepairShared<MergedBlock> shared;
  __shared__ RepairMask<MergedBlock> mask;
  __shared__ MergeSums sums;
  GemmArgs const& gemm = params.repair.gemm;
  int const thread = threadIdx.x;
  MergePlace const place{thread % MergeBlock::kLanes, thread / MergeBlock::kLanes};
  int64_t const n0 = int64_t(blockIdx.x) * MergeBlock::kLanes;
  prefetch_vectors(params.merge, n0 + place.lane, place);
  double const reciprocal = 1.0 / double(gemm.m);

  wait_for_previous_kernel();
  prefetch_partials(params.merge, n0 + place.lane, place);
  bool lost = place.slice == 0 && n0 + place.lane < gemm.n &&
              params.repair.weight_scales[n0 + place.lane].least() > 0.0f;
#pragma unroll 4
  for (int64_t m = thread; m < gemm.m; m += MergedBlock::kThreads) {
    lost |= params.repair.x_scales[m].least() > 0.0f;
  }
  if (__syncthreads_or(lost)) {
    repair_columns<Epilogue>(params.repair, n0, mask, shared);
  }
  // The next kernel may read rows, also what was repaired, before this one has ended.
  __threadfence();
  __syncthreads();
  allow_next_kernel();
  merge_columns<true, false>(params.merge, n0 + place.lane, place, reciprocal, sums);
}

}  // namespace cutlass_fused
