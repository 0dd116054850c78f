// Products with batch statistics behind them: declarations only.
#pragma once

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_bias.hpp"
#include "cutlass_fused/epilogue/unscaled.hpp"
#include "cutlass_fused/gemm/run.hpp"
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
template <class Math>
constexpr int64_t kRowsOfPart = Math::kEngine == Engine::kFp16x3 ? 128 : 256;
template <class Math>
Ranges ranges_of_parts(int64_t rows) {
  return {ceil_div(rows, kRowsOfPart<Math>), kRowsOfPart<Math>};
}

// y in one kernel. `parts` is what run_clear_parts left.
template <class Math>
Status run_gemm_batch_norm(GemmArgs const& gemm, BatchNormOfProduct const& batch_norm, void* parts,
                           Launch const& launch);

// Fills the workspace with what stands for a part that is missing, and counts the batch.
Status run_clear_parts(void* parts, size_t bytes, int64_t* num_batches_tracked,
                       Device const& device, cudaStream_t stream);

// z, less the shifts of its parts where it is of 16 bits, and its parts. `strips`: null, or for
// every strip of z the number of its tiles that are in memory, to be counted up from zero. Then
// strips are completed one after another, if with several at a time, and the kernel behind this one
// runs at the same time as soon as it has room.
template <class Math>
Status run_gemm_statistics(GemmArgs const& gemm, typename EpilogueOfZ<Math>::Args const& epilogue,
                           PartPointers const& parts, unsigned* strips, Launch const& launch);

// The same by an SM80 kernel, over ranges of a tile's rows (plan/choice_statistics_sm80.hpp).
// kUnknownTile: that tile's kernel finds none.
template <class Math>
Status run_gemm_statistics_sm80(GemmArgs const& gemm, int tile,
                                typename EpilogueOfZ<Math>::Args const& epilogue,
                                PartPointers const& parts, Launch const& launch);

}  // namespace cutlass_fused
