// Declarations only: batch norm over the rows of a matrix, for ops.
//
// In training three kernels follow each other: partial statistics of ranges of rows, their merge
// (which also moves the running statistics), and the normalization.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/batch_norm_ranges.hpp"
#include "cutlass_fused/normalization.hpp"
#include "cutlass_fused/types.hpp"

namespace cutlass_fused {

// A running statistic (N,) to be updated in place, or nothing.
struct RunningVector {
  void* data = nullptr;
  int64_t stride = 0;
  DataType type = DataType::kFloat32;
};

// running = (1 - momentum) * running + momentum * batch, the variance unbiased.
struct RunningStatistics {
  RunningVector mean, var;
  int64_t* num_batches_tracked = nullptr;  // counted up first, if there is one
  double momentum = 0.1;
  bool cumulative = false;  // momentum is 1 / num_batches_tracked: the mean of all batches
};

// What a batch's statistics are needed for: fp32 vectors (N,), contiguous.
struct BatchStatistics {
  float* mean;
  float* rstd;  // 1 / sqrt(biased variance + eps)
  float* a;     // gamma * rstd
};

// The workspace of the two kernels below holds Ranges::bytes, 8-byte aligned.
template <DataType kIn>
Status run_column_statistics(Matrix const& x, Ranges const& ranges, void* workspace,
                             int64_t* num_batches_tracked, Device const& device,
                             cudaStream_t stream);

Status run_merge_statistics(Matrix const& x, Ranges const& ranges, void const* workspace,
                            Vector const& gamma, float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, Device const& device,
                            cudaStream_t stream);

// What is left to do for an empty batch.
Status run_count_batch(int64_t* num_batches_tracked, Device const& device, cudaStream_t stream);

// y = (x - mean) * a + d, for x of the type kIn. y is a contiguous matrix like x, of x's type; it
// may be x itself, if that is contiguous. Scale: of NormalizationBy.
template <DataType kIn, class Scale>
Status run_normalize(Matrix const& x, NormalizationBy<Scale> const& normalization, void* y,
                     Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
