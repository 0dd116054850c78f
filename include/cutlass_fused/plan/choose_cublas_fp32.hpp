// When cuBLAS multiplies fp32 matrices: in fp32 under "ieee", in TF32 under "tf32".
#pragma once

#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// The estimates are nanoseconds in a CUDA graph, fitted to gradients of weights of 64 x 64 to
// 4096 x 4096 from a batch of 16, timed on an H100. Such products write more than they read: the
// SIMT kernel gives a number of y in 6 ps, cuBLAS in 2, and an epilogue behind cuBLAS's product
// reads and writes it in 4. Operands come at 2 TB/s.
inline int64_t cost_of_operands(Problem const& problem) {
  constexpr int64_t kBytesPerNs = 2000;
  return 4 * (problem.m + problem.n) * problem.k / kBytesPerNs;
}

inline int64_t cost_of_cublas_fp32(Problem const& problem, Tail const& tail) {
  constexpr int64_t kLaunchNs = 2400, kEpilogueNs = 1800, kPsOfProduct = 2, kPsOfEpilogue = 4;
  int64_t const epilogue =
      tail.is_bare ? 0 : kEpilogueNs + problem.m * problem.n * kPsOfEpilogue / 1000;
  return kLaunchNs + cost_of_operands(problem) + problem.m * problem.n * kPsOfProduct / 1000 +
         epilogue;
}

// Of a product on CUDA cores, behind copies of the operands that lie along M or N.
inline int64_t cost_of_simt(Problem const& problem) {
  constexpr int64_t kLaunchNs = 3300, kCopyNs = 3200, kPsOfProduct = 6;
  int64_t const copies =
      (problem.x.major == Major::kMn ? 1 : 0) + (problem.weight.major == Major::kMn ? 1 : 0);
  return kLaunchNs + copies * kCopyNs + cost_of_operands(problem) +
         problem.m * problem.n * kPsOfProduct / 1000;
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
                                      Overrides const& overrides) {
  constexpr ProductPlan kCublas{ProductBy::kCublas};
  bool const serves = cublas_serves_fp32(problem, tail, overrides.struck);
  TileOverride const *const forced = overrides.forced, *const tuned = overrides.tuned;
  if (forced != nullptr && forced->cublas && is_of_fp32(problem, tail)) {
    return serves ? kCublas : ProductPlan{ProductBy::kUnknownTile};
  }
  if (!serves || (forced != nullptr && leaves_no_choice(*forced, problem))) return {};
  if (tuned != nullptr && tuned->cublas) return kCublas;
  // The estimates are of short sums alone.
  bool const wins = problem.engine() == Engine::kSimt &&
                    cost_of_cublas_fp32(problem, tail) < cost_of_simt(problem);
  return wins ? kCublas : ProductPlan{};
}

}  // namespace cutlass_fused
