// What a product of fp32 matrices takes cuBLAS, in TF32. Plain host integers, nanoseconds in a CUDA
// graph, fitted to 266 products of the suite `products` on an H100: within a fifth of most times,
// and where they are near those of our kernels, mostly on the right side of them.
#pragma once

#include <algorithm>
#include <cmath>

#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// In which order the operands lie: its kernels differ.
struct CublasTf32Cost {
  int launch_ns, flops_per_ns, bytes_per_ns;
  int exposed_percent;  // of the smaller one of work and memory
  int stage_ns;         // by the logarithm of K: few tiles do not hide their latency
  int pieces_percent;   // where lines do not begin at multiples of 16 bytes
};

inline CublasTf32Cost const& cublas_tf32_cost(Problem const& problem) {
  static constexpr CublasTf32Cost kAlongK{3610, 420000, 5770, 88, 470, 198};
  static constexpr CublasTf32Cost kWeightAlongN{3150, 363000, 3260, 50, 740, 122};
  static constexpr CublasTf32Cost kAlongMn{4360, 223000, 4740, 87, 280, 173};
  static constexpr CublasTf32Cost kBatch{1500, 160000, 2910, 100, 510, 118};
  if (problem.batch > 1) return kBatch;
  if (problem.x.major == Major::kMn) return kAlongMn;
  return problem.weight.major == Major::kMn ? kWeightAlongN : kAlongK;
}

inline bool has_whole_lines(Rows const& rows) {
  return rows.alignment % 16 == 0 && rows.ld % 4 == 0;
}

// Other GPUs were not timed.
inline bool knows_cublas_tf32(Device const& device) { return device.compute_capability == 90; }

inline int64_t cost_of_cublas_tf32(Problem const& problem) {
  CublasTf32Cost const& cost = cublas_tf32_cost(problem);
  int64_t const m = ceil_div(problem.m, int64_t(64)) * 64,
                n = ceil_div(problem.n, int64_t(64)) * 64;
  double const work_ns =
      2.0 * double(m) * double(n) * double(problem.k) * double(problem.batch) / cost.flops_per_ns;
  double const numbers =
      double(problem.m + problem.n) * double(problem.k) + double(problem.m) * double(problem.n);
  double const memory_ns = 4 * numbers * double(problem.batch) / cost.bytes_per_ns;
  double ns =
      std::max(work_ns, memory_ns) + std::min(work_ns, memory_ns) * cost.exposed_percent / 100;
  constexpr int64_t kFewTiles = 132;
  if (ceil_div(problem.m, int64_t(128)) * (n / 64) * problem.batch < kFewTiles) {
    ns += cost.stage_ns * std::log2(1 + double(problem.k) / 64);
  }
  bool const whole = has_whole_lines(problem.x) && has_whole_lines(problem.weight);
  return cost.launch_ns + int64_t(whole ? ns : ns * cost.pieces_percent / 100);
}

}  // namespace cutlass_fused
