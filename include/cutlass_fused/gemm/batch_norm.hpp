// Products with batch statistics behind them: their operands, and how they cut a batch.
#pragma once

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_bias.hpp"
#include "cutlass_fused/epilogue/unscaled.hpp"
#include "cutlass_fused/common/math.hpp"
#include "cutlass_fused/norm/strips.hpp"

namespace cutlass_fused {

//   z = (acc + bias[n]) * scale[n],   y = (z - mean[n]) * rstd[n] * gamma[n] + beta[n]
// with the mean and the biased variance of z's columns.
struct BatchNormOfProduct {
  ScaleBias::Args product;
  Vector gamma, beta;
  float eps;
  // num_batches_tracked was counted up before.
  RunningStatistics running;
  float *mean, *rstd;  // of the batch, written: (N,)
};

// z = epilogue(acc) behind the product of this Math row.
template <class Math>
using EpilogueOfZ = std::conditional_t<splits_rows(Math::kEngine), Unscaled<ScaleBias>, ScaleBias>;

// The kernels write, or read, the mean and M2 of every column over every range of so many rows, in
// a workspace of Ranges::bytes, 8-byte aligned.
constexpr int rows_of_part(MathId math) {
  return spec_of(math).engine == Engine::kFp16x3 ? 128 : 256;
}
inline Ranges ranges_of_parts(MathId math, int64_t rows) {
  return {ceil_div(rows, int64_t(rows_of_part(math))), rows_of_part(math)};
}

// A product finds the statistics of no smaller z: launches take longer than passes over less.
constexpr int64_t kLeastBytesOfZ = 1 << 20;

// Fills the workspace of kBatchNormInGroup with what stands for a part that is missing, and counts
// the batch.
Status run_clear_parts(void* parts, size_t bytes, int64_t* num_batches_tracked,
                       Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
