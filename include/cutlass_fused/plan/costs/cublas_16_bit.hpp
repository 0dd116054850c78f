// What a bare product of 16-bit matrices along K takes cuBLAS on a GPU of 9.0. Plain host integers,
// nanoseconds in a CUDA graph, fitted to 71 products in bf16 and fp16 on an H200, of 32 x 512 x
// 3136 to 65536 x 256 x 256 and 16384 x 4096 x 4096, so that the choice beside our kernels is
// right, not that each time is: rather low. By constants fitted to one half of them, a tenth at
// most of the others were slower than cuBLAS by more than 5%. y in fp32 was not timed, and counts
// as if it had 16 bits.
#pragma once

#include <algorithm>
#include <cmath>

#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// Of rows that do not begin at multiples of 16 bytes, and of others that do not at those of 4, it
// has slower kernels.
inline int64_t percent_of_pieces(Problem const& problem) {
  constexpr int64_t kPiecesPercent = 229, kNumbersPercent = 363;
  int64_t const bytes = problem.operand_bytes();
  auto const is_whole = [&](int64_t piece) {
    auto const holds = [&](Rows const& rows, int64_t count) {
      return rows.alignment % piece == 0 && (count <= 1 || rows.ld * bytes % piece == 0);
    };
    bool const y_is_whole = problem.n == 1 || holds(problem.y, problem.m);
    return holds(problem.x, problem.m) && holds(problem.weight, problem.n) && y_is_whole &&
           problem.k * bytes % piece == 0;
  };
  return is_whole(16) ? 100 : is_whole(4) ? kPiecesPercent : kNumbersPercent;
}

inline int64_t cost_of_cublas_16_bit(Problem const& problem) {
  constexpr double kLaunchNs = 1924, kFlopsPerNs = 1384000;
  constexpr double kReadBytesPerNs = 7936, kWrittenBytesPerNs = 3166;
  constexpr double kStageNs = 398, kLongNs = 50000, kSlower = 1.0;
  constexpr int64_t kTile = 64, kFewTiles = 132;
  double const m = double(problem.m), n = double(problem.n), k = double(problem.k);
  double const bytes = problem.operand_bytes();
  double const outputs =
      double(ceil_div(problem.m, kTile) * kTile) * double(ceil_div(problem.n, kTile) * kTile);
  double ns = 2 * outputs * k / kFlopsPerNs + bytes * (m + n) * k / kReadBytesPerNs +
              bytes * m * n / kWrittenBytesPerNs;
  // Few tiles do not hide the latency of their stages.
  bool const is_few = ceil_div(problem.m, 2 * kTile) * ceil_div(problem.n, kTile) < kFewTiles;
  if (is_few) ns += kStageNs * std::log2(1 + k / 64);
  ns = ns * double(percent_of_pieces(problem)) / 100;
  return int64_t(kLaunchNs + ns + std::max(ns - kLongNs, 0.0) * kSlower);
}

}  // namespace cutlass_fused
