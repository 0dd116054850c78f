// Whether x of 16 bits is multiplied with an fp32 weight as both lie, or widened first.
#pragma once

#include "cutlass_fused/gemm/mixed/run.hpp"
#include "cutlass_fused/plan/make_plan.hpp"

namespace cutlass_fused {

// Estimated nanoseconds of a copy by PyTorch that moves so many bytes, one that widens x or rounds
// y.
inline int64_t cost_of_bytes(int64_t bytes) {
  constexpr int64_t kPassNs = 2000, kBytesPerNs = 2500;
  return kPassNs + bytes / kBytesPerNs;
}

// Numbers from one row of x as fp32 to the next: every row begins at a multiple of 16 bytes.
constexpr int64_t pitch_of_widened(int64_t columns) { return ceil_div(columns, 4) * 4; }

// The problem as it is behind the pass that widens x.
inline Problem make_widened_problem(Problem const& problem) {
  Problem wide = problem;
  wide.x = {pitch_of_widened(problem.k)};
  wide.y = {problem.n};
  wide.y_type = DataType::kFloat32;
  return wide;
}

// Of that pass, the fp32 product, and a pass that rounds y to 16 bits. cuBLAS in fp32 is chosen by
// a margin, which it is believed to keep.
inline double cost_of_widened(Problem const& problem, Tail const& tail, Device const& device) {
  constexpr double kMarginOfCublas = 0.85;
  Problem const wide = make_widened_problem(problem);
  double cost = cost_of_own_fp32(wide, tail, device);
  if (choose_cublas_fp32(wide, tail, device, {}).by == ProductBy::kCublas) {
    bool const in_tf32 = spec_of(wide.math).precision == Precision::kTf32;
    cost = in_tf32 ? double(cost_of_cublas_tf32(wide) + cost_of_epilogue(wide, tail))
                   : cost * kMarginOfCublas;
  }
  cost += double(cost_of_bytes(6 * problem.m * problem.k));
  if (size_of(problem.y_type) == 2) cost += double(cost_of_bytes(6 * problem.m * problem.n));
  return cost;
}

// Whether kernels of gemm/mixed can take the product. `problem`: of the numbers of x as they lie,
// and in the Math row of an fp32 product. Short sums are left to plain fp32.
inline bool mixed_serves(Problem const& problem, Tail const& tail) {
  auto const is_whole = [](Rows const& rows, int bytes) {
    return rows.alignment % 16 == 0 && rows.ld * bytes % 16 == 0;
  };
  return splits_rows(problem.math) && problem.weight_split != WeightSplit::kAlone &&
         tail.kind == Tail::kEpilogue && tail.epilogue == EpilogueId{names::kScaleLeakyReLU} &&
         problem.x.major == Major::kK && is_whole(problem.x, 2) && is_whole(problem.weight, 4);
}

// The cheapest of their tiles.
inline ChoiceTf32x3 choose_mixed_tile(Problem const& problem, Device const& device) {
  // A stage takes what it does of rows of fp32 that begin at multiples of 16 bytes.
  Problem whole = problem;
  whole.x = {problem.k};
  ChoiceTf32x3 best;
  for (int tile = 0; tile < TilesTf32x3::kSize; ++tile) {
    TileShapeTf32x3 const& shape = TilesTf32x3::kShapes[tile];
    if (!has_mixed_kernels(shape)) continue;
    for (int shares = 1; shares <= kMostShares; shares *= 2) {
      if (!can_serve(shape, shares, problem, device)) break;
      int64_t const cost = tile_cost_tf32x3(shape, shares, whole, device, /*x_bytes=*/2);
      if (cost < best.cost_ns) best = {tile, shares, cost};
    }
  }
  return best;
}

// The kernel that reads both matrices as they lie, where it takes less time, or one of tf32x3 is
// forced that it has a tile for; else kNone: x is widened. By a margin, as the time of a stage is
// set by hand. What timing found of the fp32 product says nothing of this choice, nor does it
// matter whether the parts of the weight are kept.
inline ProductPlan choose_mixed(Problem const& problem, Tail const& tail, Device const& device,
                                TileOverride const* forced) {
  if (!mixed_serves(problem, tail) || (forced != nullptr && !forced->tf32x3)) return {};
  if (forced != nullptr && !forced->tile.empty()) {
    ProductPlan const named = use_tf32x3(*forced, problem, device);
    bool const is_there =
        named.by == ProductBy::kTf32x3 && has_mixed_kernels(TilesTf32x3::kShapes[named.tile]);
    return is_there ? named : ProductPlan{};
  }
  ChoiceTf32x3 const choice = choose_mixed_tile(problem, device);
  if (choice.tile < 0) return {};
  constexpr double kMargin = 0.9;
  bool const wins = forced != nullptr ||
                    double(choice.cost_ns) < kMargin * cost_of_widened(problem, tail, device);
  return wins ? use_tf32x3(choice) : ProductPlan{};
}

}  // namespace cutlass_fused
