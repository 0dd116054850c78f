// What a product of fp32 matrices takes cuBLAS, in TF32. Plain host integers, nanoseconds in a CUDA
// graph, fitted to 261 products in three layouts on an H200, 87 of each, so that the choice beside
// our kernels is right, not that each time is: within a fifth of most that are near those of ours,
// and low rather than high. Other shapes may be off by more: by constants fitted to one half of
// these, 6 choices of the other were more than 3% slower than cuBLAS. Batches are fitted to 10 of
// attention and the like, low rather than high: one of 197 x 197 x 64 takes more by two thirds.
#pragma once

#include "cutlass_fused/plan/costs/cublas_product.hpp"

namespace cutlass_fused {

inline CublasCost const& cublas_tf32_cost(Problem const& problem) {
  static constexpr CublasCost kAlongK{2670, 527000, 8600, 3500, 90, 453, 198, 64, 63, 23};
  static constexpr CublasCost kWeightAlongN{2830, 460000, 7215, 3264, 57, 427, 204, 80, 50, 30};
  static constexpr CublasCost kAlongMn{2738, 256000, 4500, 3506, 48, 448, 119, 52, 53, 2};
  static constexpr CublasCost kBatch{2431, 541000, 3769, 2844, 0, 610, 185, 0, 1, 0};
  if (problem.batch > 1) return kBatch;
  if (problem.x.major == Major::kMn) return kAlongMn;
  return problem.weight.major == Major::kMn ? kWeightAlongN : kAlongK;
}

// Other GPUs were not timed.
inline bool knows_cublas_tf32(Device const& device) { return device.compute_capability == 90; }

inline int64_t cost_of_cublas_tf32(Problem const& problem) {
  constexpr int64_t kTile = 64;
  return cost_of_cublas(cublas_tf32_cost(problem), problem, ceil_div(problem.m, kTile) * kTile,
                        ceil_div(problem.n, kTile) * kTile);
}

}  // namespace cutlass_fused
