// What a product of split rows could not compute, in plain fp32, and its statistics at once.
#pragma once

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

// The arguments of run_repair_rows.
struct ProductToRepair {
  GemmArgs gemm;
  ScaleLeakyReLU::Args epilogue;
  SplitMatrix x, weight;
};

// Whether one kernel shall do it. Every block looks at the scales of all rows of x, and repairs all
// rows of its columns: of many rows, or with few blocks, a kernel that shares out both is better.
constexpr int kColumnsToRepairAndMerge = 32;  // of a block
inline bool repairs_and_merges(int64_t m, int64_t n, Device const& device) {
  constexpr int64_t kMostRows = 4096;
  return m <= kMostRows && ceil_div(n, kColumnsToRepairAndMerge) >= device.sm_count;
}

// run_repair_rows, and then run_merge_statistics of what is repaired now.
Status run_repair_and_merge(ProductToRepair const& product, Ranges const& ranges,
                            void const* workspace, Vector const& gamma, Vector const& beta,
                            float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, StoredShifts const& stored,
                            Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
