// What a product of fp32 matrices takes cuBLAS, in fp32. Plain host integers, nanoseconds in a CUDA
// graph, fitted to the suite `products` on an H100 where nothing else is said.
#pragma once

#include <algorithm>

#include "cutlass_fused/gemm/simt/run.hpp"
#include "cutlass_fused/plan/costs/cublas_product.hpp"
#include "cutlass_fused/plan/plan.hpp"

namespace cutlass_fused {

// Gradients of weights of 64 x 64 to 4096 x 4096 from a batch of 16 write more than they read:
// cuBLAS gives a number of y in 2 ps, and an epilogue behind its product reads and writes it in 4.
// Operands come at 2 TB/s.
inline int64_t cost_of_operands(Problem const& problem) {
  constexpr int64_t kBytesPerNs = 2000;
  return 4 * (problem.m + problem.n) * problem.k / kBytesPerNs;
}

inline int64_t cost_of_epilogue(Problem const& problem, Tail const& tail) {
  constexpr int64_t kPassNs = 1800, kPsOfOutput = 4;
  return tail.is_bare ? 0 : kPassNs + problem.m * problem.n * kPsOfOutput / 1000;
}

// Of a few rows that lie along K, a launch is all that counts.
inline int64_t cost_of_short_sums(Problem const& problem) {
  constexpr int64_t kLaunchNs = 2400, kManyRowsNs = 400, kPiecesNs = 1000, kPsOfProduct = 2;
  constexpr int64_t kNsOfWeightsK = 14, kFew = 16;
  bool const whole = has_whole_lines(problem.x) && has_whole_lines(problem.weight);
  bool const is_of_weight = problem.x.major == Major::kMn && problem.weight.major == Major::kMn;
  int64_t const more = is_of_weight       ? kNsOfWeightsK * problem.k
                       : problem.m > kFew ? kManyRowsNs
                                          : 0;
  return kLaunchNs + more + (whole ? 0 : kPiecesNs) + cost_of_operands(problem) +
         problem.m * problem.n * kPsOfProduct / 1000;
}

// Of a product on CUDA cores, set by hand after the times of 47 products on an H200. Rows of y that
// do not begin at multiples of 16 bytes are stored a number at a time.
inline int64_t cost_of_simt(Problem const& problem, Tail const& tail, Device const& device) {
  constexpr int64_t kFewNs = 1300, kFewNsOfK = 40, kManyNs = 2300, kManyNsOfK = 25, kTailNs = 600;
  constexpr int64_t kFsOfProduct = 1120, kFsOfTail = 350, kFsOfK = 22, kFsOfKAlongK = 30;
  constexpr int64_t kColumns = 64, kPiecesPercent = 220;
  int64_t const launch = FewOutputs::are(problem.m, problem.n, device)
                             ? kFewNs + kFewNsOfK * problem.k
                             : kManyNs + kManyNsOfK * problem.k;
  int64_t const outputs = problem.m * ceil_div(problem.n, kColumns) * kColumns;
  int64_t const fs_of_k = problem.x.major == Major::kK ? kFsOfKAlongK : kFsOfK;
  int64_t const fs = kFsOfProduct + fs_of_k * problem.k + (tail.is_bare ? 0 : kFsOfTail);
  int64_t const percent = problem.y.ld % 4 == 0 ? 100 : kPiecesPercent;
  return launch + (tail.is_bare ? 0 : kTailNs) + cost_of_operands(problem) +
         outputs * fs / 1000 * percent / 100 / 1000;
}

// Of a gradient of a weight, whose sums are over many rows, fitted to 75 of them on an H200: within
// a fifth of most times that are near those of our kernels. Tiles have 128 rows and columns where
// there are more than 64; a few tiles share out K.
inline int64_t cost_of_long_sums(Problem const& problem) {
  static constexpr CublasCost kCost{4303, 79000, 2095, 1191, 21, 286, 100, 21, 9, 0};
  auto const pad = [](int64_t count) {
    int64_t const tile = count > 64 ? 128 : 32;
    return ceil_div(count, tile) * tile;
  };
  return cost_of_cublas(kCost, problem, pad(problem.m), pad(problem.n));
}

// Of many rows that lie along K, fitted to 110 of them: outputs come in columns of 32.
inline int64_t cost_of_many_rows(Problem const& problem) {
  constexpr int64_t kLaunchNs = 3325, kFlopsPerNs = 49500, kBytesPerNs = 3250, kExposedPercent = 82;
  int64_t const columns = ceil_div(problem.n, int64_t(32)) * 32;
  int64_t const work_ns = 2 * problem.m * columns * problem.k / kFlopsPerNs;
  int64_t const memory_ns =
      4 * ((problem.m + problem.n) * problem.k + problem.m * problem.n) / kBytesPerNs;
  return kLaunchNs + std::max(work_ns, memory_ns) +
         std::min(work_ns, memory_ns) * kExposedPercent / 100;
}

// Of long or many rows that begin anywhere, which cost cuBLAS no more than others. Set by hand:
// more of them hide what is not work.
inline int64_t cost_of_rows_in_pieces(Problem const& problem) {
  constexpr int64_t kFlopsPerNs = 49500, kOtherNs = 13000;
  int64_t const columns = ceil_div(problem.n, int64_t(32)) * 32;
  return std::min(cost_of_many_rows(problem),
                  kOtherNs + 2 * problem.m * columns * problem.k / kFlopsPerNs);
}

// Of a matrix by a vector: set by hand, and above the times of two layers with one output.
inline int64_t cost_of_vector(Problem const& problem) {
  constexpr int64_t kLaunchNs = 2200, kBytesPerNs = 2500;
  return kLaunchNs + 4 * (problem.m + problem.n) * problem.k / kBytesPerNs;
}

// Of a batch, set by hand above the times of attention: outputs come in tiles of 64.
inline int64_t cost_of_batch(Problem const& problem) {
  constexpr int64_t kLaunchNs = 2000, kFlopsPerNs = 29000;
  int64_t const outputs =
      ceil_div(problem.m, int64_t(64)) * ceil_div(problem.n, int64_t(64)) * 64 * 64;
  return kLaunchNs + 2 * problem.batch * outputs * problem.k / kFlopsPerNs;
}

}  // namespace cutlass_fused
