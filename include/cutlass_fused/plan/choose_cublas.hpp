// When cuBLAS multiplies matrices as they lie: those of fp32 in fp32 under "ieee" and in TF32 under
// "tf32", and those of 16 bits that do not lie along K.
#pragma once

#include "cutlass_fused/plan/choose_fp32.hpp"

namespace cutlass_fused {

// The estimates are nanoseconds in a CUDA graph, fitted to gradients of weights of 64 x 64 to
// 4096 x 4096 from a batch of 16, timed on an H100. Such products write more than they read: the
// SIMT kernel gives a number of y in 6 ps, cuBLAS in 2, and an epilogue behind cuBLAS's product
// reads and writes it in 4. Operands come at 2 TB/s.
inline int64_t cost_of_operands(Problem const& problem) {
  constexpr int64_t kBytesPerNs = 2000;
  return 4 * (problem.m + problem.n) * problem.k / kBytesPerNs;
}

inline int64_t cost_of_epilogue(Problem const& problem, Tail const& tail) {
  constexpr int64_t kPassNs = 1800, kPsOfOutput = 4;
  return tail.is_bare ? 0 : kPassNs + problem.m * problem.n * kPsOfOutput / 1000;
}

inline int64_t cost_of_cublas_fp32(Problem const& problem, Tail const& tail) {
  constexpr int64_t kLaunchNs = 2400, kPsOfProduct = 2;
  return kLaunchNs + cost_of_operands(problem) + problem.m * problem.n * kPsOfProduct / 1000 +
         cost_of_epilogue(problem, tail);
}

// Of a product on CUDA cores, behind copies of the operands that lie along M or N.
inline int64_t cost_of_simt(Problem const& problem) {
  constexpr int64_t kLaunchNs = 3300, kCopyNs = 3200, kPsOfProduct = 6;
  int64_t const copies =
      (problem.x.major == Major::kMn ? 1 : 0) + (problem.weight.major == Major::kMn ? 1 : 0);
  return kLaunchNs + copies * kCopyNs + cost_of_operands(problem) +
         problem.m * problem.n * kPsOfProduct / 1000;
}

// Of a gradient of a weight, whose sums are over many rows, in fp32. Set by hand: within a fifth of
// most times of 64 x 64 to 512 x 512 from batches of 2048 and 16384, on an H100. cuBLAS is faster
// where there are few outputs of long sums.
inline int64_t cost_of_long_sums(Problem const& problem) {
  constexpr int64_t kLaunchNs = 6000, kFlopsPerNs = 50000, kBytesPerNs = 5000;
  return kLaunchNs + 2 * problem.m * problem.n * problem.k / kFlopsPerNs +
         4 * (problem.m + problem.n) * problem.k / kBytesPerNs;
}

// Of ours.
inline double cost_of_own_fp32(Problem const& problem, Device const& device) {
  Problem rows = problem;
  rows.x = rows.weight = {problem.multiplied_k()};
  ProductPlan const product = choose_newest(rows, device, {});
  double const whole = double(choose_tf32x3(problem, device).cost_ns);
  if (product.by != ProductBy::kTile) return whole;
  return std::min(whole, cost_of_split_rows(problem, product, device).mean());
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

// Of a matrix by a vector: set by hand, and above the times of two layers with one output.
inline int64_t cost_of_vector(Problem const& problem) {
  constexpr int64_t kLaunchNs = 2200, kBytesPerNs = 2500;
  return kLaunchNs + 4 * (problem.m + problem.n) * problem.k / kBytesPerNs;
}

// By a margin, as the estimates of cuBLAS are off by a tenth, and more where it chooses badly.
inline bool beats_own_fp32(Problem const& problem, Tail const& tail, Device const& device) {
  constexpr int64_t kManyRows = 1024;
  if (problem.engine() != Engine::kFp16x3) return false;
  bool const is_of_weight = problem.x.major == Major::kMn && problem.weight.major == Major::kMn;
  double const own = cost_of_own_fp32(problem, device);
  auto const wins = [&](int64_t cost, double margin) {
    return double(cost + cost_of_epilogue(problem, tail)) < margin * own;
  };
  if (problem.n == 1 || (problem.m == 1 && is_of_weight))
    return wins(cost_of_vector(problem), 0.97);
  if (is_of_weight) return wins(cost_of_long_sums(problem), 0.97);
  bool const is_of_rows = problem.x.major == Major::kK && problem.m >= kManyRows;
  return is_of_rows && wins(cost_of_many_rows(problem), 0.85);
}

inline bool is_of_fp32(Problem const& problem, Tail const& tail) {
  return spec_of(problem.math).type == DataType::kFloat32 && tail.kind != Tail::kBatchNorm;
}

// Of fp32 matrices that are there; the epilogue works on y, in its place.
inline bool cublas_serves_fp32(Problem const& problem, Tail const& tail, Struck struck) {
  return is_of_fp32(problem, tail) && problem.y_type == DataType::kFloat32 && problem.k > 0 &&
         problem.weight_split != WeightSplit::kAlone && !struck.has(Part::kCublas);
}

// Whether what is forced leaves no choice. The names of all kernels of split rows, or of all that
// take their place, say nothing of short sums.
inline bool leaves_no_choice(TileOverride const& forced, Problem const& problem) {
  bool const of_split_rows = forced.tile.empty() && (forced.tf32x3 || forced.splits_rows);
  return problem.engine() != Engine::kSimt || !of_split_rows;
}

// cuBLAS, where it is forced, or was found by timing, or takes less time; kUnknownTile: it is
// forced and cannot serve; else kNone. cuBLAS reads either order of operands alike, so that what
// timing found for operands along K holds for others too. Whether the parts of a weight are kept
// counts for nothing, as the bits of the result must not depend on it.
inline ProductPlan choose_cublas_fp32(Problem const& problem, Tail const& tail,
                                      Device const& device, Overrides const& overrides) {
  constexpr ProductPlan kCublas{ProductBy::kCublas};
  bool const serves = cublas_serves_fp32(problem, tail, overrides.struck);
  TileOverride const *const forced = overrides.forced, *const tuned = overrides.tuned;
  if (forced != nullptr && forced->cublas && is_of_fp32(problem, tail)) {
    return serves ? kCublas : ProductPlan{ProductBy::kUnknownTile};
  }
  if (!serves || (forced != nullptr && leaves_no_choice(*forced, problem))) return {};
  if (tuned != nullptr && tuned->cublas) return kCublas;
  // What was timed of split rows, or of tf32x3, stands.
  bool const wins =
      problem.engine() == Engine::kSimt
          ? cost_of_cublas_fp32(problem, tail) < cost_of_simt(problem)
          : forced == nullptr && tuned == nullptr && beats_own_fp32(problem, tail, device);
  return wins ? kCublas : ProductPlan{};
}

// ---- 16 bits ----

inline bool lies_along_mn(Problem const& problem) {
  return problem.x.major == Major::kMn || problem.weight.major == Major::kMn;
}

// Whether an epilogue behind cuBLAS's product moves fewer bytes than copies of the operands in
// front of ours. Behind cuBLAS's each number of y goes to memory in fp32 and comes back, beside
// what ours writes; a copy reads an operand and writes it. The launches are as many. Nothing here
// was timed.
inline bool has_small_tail(Problem const& problem) {
  auto const copied = [](Rows const& rows, int64_t count) {
    return rows.major == Major::kMn ? count : 0;
  };
  int64_t const lines = copied(problem.x, problem.m) + copied(problem.weight, problem.n);
  return 8 * problem.m * problem.n <= 2 * problem.operand_bytes() * lines * problem.k;
}

// Of 16-bit matrices of which one at least lies along M or N, which our kernels read only from
// copies: kCublas; kUnknownTile: it is forced and cannot serve; else kNone. cuBLAS reads either
// order alike, so that it also is what timing found for operands along K.
inline ProductPlan choose_cublas_16_bit(Problem const& problem, Tail const& tail,
                                        Overrides const& overrides) {
  constexpr ProductPlan kCublas{ProductBy::kCublas};
  if (problem.engine() != Engine::kPlain || !lies_along_mn(problem)) return {};
  bool const serves = cublas_serves(problem) && !overrides.struck.has(Part::kCublas);
  TileOverride const *const forced = overrides.forced, *const tuned = overrides.tuned;
  if (forced != nullptr) {
    if (!forced->cublas) return {};
    return serves ? kCublas : ProductPlan{ProductBy::kUnknownTile};
  }
  bool const was_found = tuned != nullptr && tuned->cublas;
  return serves && (tail.is_bare || was_found || has_small_tail(problem)) ? kCublas : ProductPlan{};
}

}  // namespace cutlass_fused
