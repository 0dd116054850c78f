// When cuBLAS multiplies matrices as they lie: those of fp32 in fp32 under "ieee" and in TF32 under
// "tf32", those of 16 bits that do not lie along K, and others of 16 bits with nothing behind them.
#pragma once

#include "cutlass_fused/plan/choose_fp32.hpp"
#include "cutlass_fused/plan/costs/cublas_16_bit.hpp"

namespace cutlass_fused {

// Of ours, with the parts of a weight that are made in the call: where these are kept, our kernels
// take less beside cuBLAS, but there is one choice for both, which shall never be the slower one.
inline double cost_of_own_fp32(Problem const& problem, Tail const& tail, Device const& device) {
  constexpr double kMarginInTf32 = 1.03;
  SplitChoice const choice = choose_split(problem, tail.epilogue, device);
  double const whole = double(choose_as_they_lie(problem, tail, device).cost_ns);
  if (choice.product.by != ProductBy::kTile) return whole;
  SplitCost const split = cost_of_split_rows(problem, choice, device);
  if (whole < split.of_both()) return whole;
  return double(split.missing) * (problem.engine() == Engine::kFp16x1 ? kMarginInTf32 : 1);
}

// A launch is all that counts of so few rows.
inline bool is_tiny(Problem const& problem) {
  return !lies_along_mn(problem) && problem.m <= 16 && problem.n <= 512 && problem.k <= 64;
}

// The margins are those with which 261 products on an H200 are no slower than by cuBLAS.
inline bool beats_own_fp32(Problem const& problem, Tail const& tail, Device const& device) {
  constexpr int64_t kManyRows = 1024, kVeryMany = 16384, kFewOutputs = 1 << 15, kShort = 64;
  bool const is_of_weight = problem.x.major == Major::kMn && problem.weight.major == Major::kMn;
  double const own = cost_of_own_fp32(problem, tail, device);
  auto const wins = [&](int64_t cost, double margin) {
    return double(cost + cost_of_epilogue(problem, tail)) < margin * own;
  };
  if (problem.n == 1 || (problem.m == 1 && problem.weight.major == Major::kMn)) {
    return wins(cost_of_vector(problem), 0.97);
  }
  if (is_of_weight) {
    return wins(cost_of_long_sums(problem), problem.m * problem.n <= kFewOutputs ? 1.05 : 1);
  }
  if (is_tiny(problem)) return wins(cost_of_short_sums(problem), 0.97);
  if (problem.x.major == Major::kMn) return false;
  // Of few rows its times are erratic, but for a short K and a weight along N.
  bool const along_n = problem.weight.major == Major::kMn, is_short = problem.k <= kShort;
  if (has_whole_lines(problem.x) && has_whole_lines(problem.weight)) {
    // Of very many rows and a weight along N it takes a tenth less than that, as layers of models
    // show. Of more than were timed its sums err more than ours, where they are long.
    constexpr int64_t kMostTimed = 65536;
    double const of_very_many = along_n ? 1.1 : 1.02, of_few = 1.02, of_many = 0.97;
    double const margin = problem.m > kMostTimed   ? 0.8
                          : problem.m >= kVeryMany ? of_very_many
                          : problem.m >= kManyRows ? of_many
                                                   : of_few;
    bool const is_known = problem.m >= kManyRows || (along_n && is_short);
    return is_known && wins(cost_of_many_rows(problem), margin);
  }
  return std::max(problem.m, problem.k) >= kManyRows && wins(cost_of_rows_in_pieces(problem), 1);
}

// In TF32. What is only a vector it multiplies in fp32.
inline bool beats_own_tf32(Problem const& problem, Tail const& tail, Device const& device) {
  if (!knows_cublas_tf32(device)) return false;
  int64_t cublas = cost_of_cublas_tf32(problem);
  if (std::min(problem.m, problem.n) == 1) cublas = std::min(cublas, cost_of_vector(problem));
  return double(cublas + cost_of_epilogue(problem, tail)) < cost_of_own_fp32(problem, tail, device);
}

// Of a K too short to be split.
inline bool beats_simt(Problem const& problem, Tail const& tail, Device const& device) {
  bool const in_tf32 = spec_of(problem.math).precision == Precision::kTf32;
  int64_t const cublas = in_tf32 && knows_cublas_tf32(device) ? cost_of_cublas_tf32(problem)
                                                              : cost_of_short_sums(problem);
  return cublas + cost_of_epilogue(problem, tail) < cost_of_simt(problem, tail, device);
}

inline bool beats_own(Problem const& problem, Tail const& tail, Device const& device) {
  switch (problem.engine()) {
    case Engine::kSimt:
      return beats_simt(problem, tail, device);
    case Engine::kFp16x1:
      return beats_own_tf32(problem, tail, device);
    default:
      return beats_own_fp32(problem, tail, device);
  }
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
  bool const is_tuned = tuned != nullptr && can_have(*tuned, problem, tail, device);
  bool const is_open = problem.engine() == Engine::kSimt || (forced == nullptr && !is_tuned);
  bool const wins = is_open && beats_own(problem, tail, device);
  return wins ? kCublas : ProductPlan{};
}

// ---- 16 bits ----

// Whether an epilogue behind cuBLAS's product takes less time than copies of the operands in front
// of ours. Behind cuBLAS's each number of y goes to memory in fp32 and comes back, beside what ours
// writes: a nanosecond for a thousand while they stay in L2, and more beyond. A copy transposes an
// operand. The numbers were set by hand after 13 products of 512 x 768 x 512 to 16384 x 2048 x 2048
// on an H200, in bf16 with a GELU and a weight along N: of 2048 x 2048 x 2048 the copy takes some
// 26 us and the epilogue 5. An x along M was not timed.
inline bool has_small_tail(Problem const& problem) {
  constexpr double kTailNs = 500, kNsOfOutput = 1e-3, kMoreOfMemory = 0.7e-3;
  constexpr double kCopyNs = 1500, kBytesPerNs = 650, kInL2 = 1 << 22;
  auto const cost_of_copy = [&](Rows const& rows, int64_t count) {
    double const bytes = 2.0 * problem.operand_bytes() * double(count) * double(problem.k);
    return rows.major == Major::kMn ? kCopyNs + bytes / kBytesPerNs : 0;
  };
  double const outputs = double(problem.m) * double(problem.n);
  double const tail =
      kTailNs + kNsOfOutput * outputs + kMoreOfMemory * std::max(outputs - kInL2, 0.0);
  return tail <= cost_of_copy(problem.x, problem.m) + cost_of_copy(problem.weight, problem.n);
}

// Whether rows are shorter than the pieces that our kernels of 16-bit matrices read.
inline bool is_short(Problem const& problem) { return problem.k * problem.operand_bytes() < 16; }

// Whether cuBLAS takes less time for a bare product along K than our kernels. Of 71 on an H200,
// each in bf16 and fp16, it has 41: those that lose a launch or a copy beside it, and a few larger
// ones. The margin leaves ours what takes the same. What was refused does not count, so that the
// bits depend on the problem alone. Other GPUs, and kernels of older ones, were not timed.
inline bool beats_own_16_bit(Problem const& problem, Tail const& tail, Device const& device) {
  constexpr double kMargin = 0.97;
  bool const is_timed = tail.is_bare && tail.kind == Tail::kEpilogue && problem.batch == 1 &&
                        device.compute_capability == 90 && problem.k > 0;
  if (!is_timed || lies_along_mn(problem)) return false;
  Plan own;
  plan_product(own, problem, device, {});
  ArchSpec const& arch = spec_of(own.product.arch);
  if (own.product.by != ProductBy::kTile || arch.cost_of_bare == nullptr) return false;
  Problem const copied = with_copies(problem, own.copies);
  int const tile = own.product.tile;
  int64_t const estimate = arch.estimate(tile, copied, device).cost;
  int64_t const cost = arch.cost_of_bare(
      tile, copied, own.copies, estimate + arch.surcharge(tile, copied, estimate, device), device);
  return double(cost_of_cublas_16_bit(problem)) < kMargin * double(cost);
}

// Of 16-bit matrices of which one at least lies along M or N, which our kernels read only from
// copies, of a bare product of very short rows, or of another that it does faster: kCublas;
// kUnknownTile: it is forced and cannot serve; else kNone. cuBLAS reads either order alike, so that
// it also is what timing found for operands along K.
inline ProductPlan choose_cublas_16_bit(Problem const& problem, Tail const& tail,
                                        Device const& device, Overrides const& overrides) {
  constexpr ProductPlan kCublas{ProductBy::kCublas};
  if (problem.engine() != Engine::kPlain) return {};
  bool const serves = cublas_serves(problem) && !overrides.struck.has(Part::kCublas);
  TileOverride const *const forced = overrides.forced, *const tuned = overrides.tuned;
  bool const is_for_cublas = lies_along_mn(problem) || (tail.is_bare && is_short(problem));
  if (!is_for_cublas) {
    bool const is_open = serves && forced == nullptr && tuned == nullptr;
    return is_open && beats_own_16_bit(problem, tail, device) ? kCublas : ProductPlan{};
  }
  if (forced != nullptr) {
    if (!forced->cublas) return {};
    return serves ? kCublas : ProductPlan{ProductBy::kUnknownTile};
  }
  bool const was_found = tuned != nullptr && tuned->cublas;
  return serves && (tail.is_bare || was_found || has_small_tail(problem)) ? kCublas : ProductPlan{};
}

}  // namespace cutlass_fused
