// What a product takes cuBLAS that hides little behind its work. Plain host integers, nanoseconds
// in a CUDA graph.
#pragma once

#include <algorithm>
#include <cmath>

#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// Its kernels differ by the precision, and by the order in which the operands lie.
struct CublasCost {
  int launch_ns, flops_per_ns, read_bytes_per_ns, written_bytes_per_ns;
  int exposed_percent;  // of the smaller one of work and memory
  int stage_ns;         // by the logarithm of K: few tiles do not hide their latency
  int pieces_percent;   // where lines do not begin at multiples of 16 bytes
  // Work takes longer by this power of the share of SMs that have tiles, which counts as no smaller
  // than the least one: cuBLAS also has smaller tiles, and cuts K.
  int waves_power_percent, least_share_percent;
  int slower_percent;  // of what is behind kLongNs
};

inline bool has_whole_lines(Rows const& rows) {
  return rows.alignment % 16 == 0 && rows.ld % 4 == 0;
}

// Of an H100 or H200, by tiles of 128 x 128.
inline double share_of_waves(Problem const& problem) {
  constexpr int64_t kSms = 132, kTile = 128;
  int64_t const tiles = ceil_div(problem.m, kTile) * ceil_div(problem.n, kTile) * problem.batch;
  return double(tiles) / double(ceil_div(tiles, kSms) * kSms);
}

// `m` and `n`: those of the problem, up to whole tiles.
inline int64_t cost_of_cublas(CublasCost const& cost, Problem const& problem, int64_t m,
                              int64_t n) {
  constexpr int64_t kFewTiles = 132;
  constexpr double kLongNs = 50000;
  double const k = double(problem.k), batch = double(problem.batch);
  double const share = std::max(share_of_waves(problem), cost.least_share_percent / 100.0);
  double const work_ns = 2.0 * double(m) * double(n) * k * batch / cost.flops_per_ns /
                         std::pow(share, cost.waves_power_percent / 100.0);
  double const memory_ns = 4 * batch *
                           (double(problem.m + problem.n) * k / cost.read_bytes_per_ns +
                            double(problem.m) * double(problem.n) / cost.written_bytes_per_ns);
  double ns =
      std::max(work_ns, memory_ns) + std::min(work_ns, memory_ns) * cost.exposed_percent / 100;
  if (ceil_div(problem.m, int64_t(128)) * ceil_div(n, int64_t(64)) * problem.batch < kFewTiles) {
    ns += cost.stage_ns * std::log2(1 + k / 64);
  }
  bool const whole = has_whole_lines(problem.x) && has_whole_lines(problem.weight);
  if (!whole) ns = ns * cost.pieces_percent / 100;
  ns += std::max(ns - kLongNs, 0.0) * cost.slower_percent / 100;
  return cost.launch_ns + int64_t(ns);
}

}  // namespace cutlass_fused
