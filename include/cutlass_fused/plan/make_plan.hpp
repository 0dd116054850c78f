// make_plan: which kernels serve a call. A pure function over host integers.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/plan/plan_batch_norm.hpp"

namespace cutlass_fused {

// Whether a product of fp32 matrices runs on rows that are split into fp16 numbers, not on CUDA
// cores. At a K of 32 plain fp32 has the smaller error, at 36 split numbers have; under "tf32"
// memory is the limit there, and cuBLAS computes such products in fp32 too.
inline bool splits_for(int64_t k) {
  constexpr int64_t kShort = 32;
  return k > kShort &&
         fits_kernels(1, 1, Problem{MathId::kFp16x3, 1, 1, k, DataType::kFloat32}.multiplied_k());
}

// The Math row of a product of matrices of this type; `coarse`: fp32 ones under "tf32".
inline MathId choose_math(DataType type, bool coarse, int64_t k) {
  switch (type) {
    case DataType::kFloat16:
      return MathId::kF16;
    case DataType::kBFloat16:
      return MathId::kBf16;
    case DataType::kFloat32:
      break;
  }
  return !splits_for(k) ? MathId::kFp32 : coarse ? MathId::kFp16x1 : MathId::kFp16x3;
}

// As the problem lies behind these copies.
inline Problem with_copies(Problem problem, Copies const& copies) {
  int64_t const whole = 16 / problem.operand_bytes();
  auto const align = [&](int64_t columns) { return Rows{ceil_div(columns, whole) * whole}; };
  if (copies.x) problem.x = align(problem.k);
  if (copies.weight) problem.weight = align(problem.k);
  if (copies.y) problem.y = align(problem.n);
  return problem;
}

// Copies of rows that TMA cannot read or write, so that an SM90 kernel can serve. They take less
// time than the SM80 kernels for such rows would lose.
inline Copies choose_copies(Problem const& problem, Device const& device, Struck struck) {
  constexpr int64_t kManyRows = 512;  // with fewer, kernels of slices of K write y as it lies
  DataType const type = spec_of(problem.math).type;
  if (spec_of(problem.math).engine != Engine::kPlain || problem.k == 0 ||
      !device.archs.has(ArchId::kSm90) || struck.has(Part::kCopies)) {
    return {};
  }
  return {!tma_reads_x(problem), !tma_reads_weight(problem),
          problem.y_type == type && problem.m >= kManyRows && !tma_writes_rows(problem, type)};
}

// The product, and the copies beside it.
inline void plan_product(Plan& plan, Problem const& problem, Device const& device,
                         Overrides const& overrides) {
  Copies copies = choose_copies(problem, device, overrides.struck);
  if (copies.any()) {
    Problem const copied = with_copies(problem, copies);
    ProductPlan const product = choose_product(copied, device, overrides, copies.operands());
    bool const has_tile = product.by == ProductBy::kTile;
    if (product.arch == ArchId::kSm90 && (has_tile || product.by == ProductBy::kUnknownTile)) {
      bool const direct =
          has_tile && tiles_sm90(problem.math).shapes[product.tile].output == Output::kDirect;
      if (direct) copies.y = false;  // the kernel writes y as it lies
      plan.copies = copies;
      plan.product = product;
      return;
    }
  }
  plan.product = choose_product(problem, device, overrides);
}

// Whether the tile with fp32 results for a softmax is cheaper than the one that serves others.
inline bool prefers_logits_tile(Problem const& problem, ProductPlan const& product,
                                Device const& device, Overrides const& overrides) {
  if (spec_of(problem.math).engine != Engine::kPlain || overrides.forced != nullptr ||
      overrides.struck.has(Part::kLogits) || !tma_writes_rows(problem, DataType::kFloat32) ||
      product.by != ProductBy::kTile || product.arch != ArchId::kSm90) {
    return false;
  }
  TilesOfMathSm90 const tiles = tiles_sm90(problem.math);
  TileShapeSm90 const& logits = tiles.shapes[find_tile<sm90::Tiles, LogitsTile>()];
  return can_count(logits, problem) &&
         estimate_tile(logits, problem, device).cost <
             estimate_tile(tiles.shapes[product.tile], problem, device).cost;
}

inline void plan_batch_norm(Plan& plan, Problem const& problem, Tail const& tail,
                            Device const& device, Overrides const& overrides) {
  Struck const struck = overrides.struck;
  bool const narrow = size_of(problem.y_type) == 2, splits = splits_rows(problem.math);
  // In 16 bits z is stored less shifts, unless somebody wants it as it is.
  bool const as_it_is = tail.keeps_z && !tail.has_centre;
  plan.shifts = narrow && !as_it_is;
  plan.norm = NormBy::kColumns;
  plan.epilogue = names::kScaleLeakyReLU;
  if (problem.math == MathId::kFp32) {
    plan.product = {ProductBy::kSimt};
  } else {
    NormBy const by = choose_norm_sm90(problem, true, device, overrides);
    bool const may_shift = !narrow || !as_it_is;
    if (!splits && !tail.keeps_z &&
        choose_norm_sm90(problem, false, device, overrides) == NormBy::kGroup) {
      plan.norm = NormBy::kGroup;
      plan.shifts = false;  // z is in no memory
      plan.epilogue = names::kBatchNormInGroup;
      plan.product = {ProductBy::kTile, ArchId::kSm90, 0, {Raster::kAlongN, 1}};
      return;
    }
    bool const strips = !splits && tail.is_last && !as_it_is && !struck.has(Part::kStrips) &&
                        by == NormBy::kProductStatistics && normalizes_strips(problem) &&
                        tail.y_alignment == 16;
    if (by == NormBy::kProductStatistics && (splits || may_shift)) {
      int const tile = statistics_tile_sm90(problem.math);
      Raster const raster =
          strips ? Raster{Raster::kAlongN, kStripsOfPanel}
                 : estimate_tile(tiles_sm90(problem.math).shapes[tile], problem, device).raster;
      plan.norm = strips ? NormBy::kStrips : NormBy::kProductStatistics;
      plan.product = {ProductBy::kTile, ArchId::kSm90, tile, raster};
    } else {
      plan.product = choose_product(problem, device, overrides);
      int const tile = splits || may_shift
                           ? choose_statistics_tile_sm80(plan.product, problem, device, overrides)
                           : -1;
      if (tile >= 0) {
        plan.norm = NormBy::kProductStatistics;
        plan.product.tile = tile;
      } else {
        plan_product(plan, problem, device, overrides);
      }
    }
    if (plan.norm != NormBy::kColumns) plan.epilogue = names::kStatistics;
  }
  if (plan.norm == NormBy::kColumns && !struck.has(Part::kOnChip) &&
      (tail.is_last || problem.y_type == DataType::kFloat32)) {
    MatrixLayout const z{problem.m, problem.n, problem.y.ld, problem.y.alignment, problem.y_type};
    plan.on_chip = choose_cluster_plan(z, tail.y_alignment, device);
    if (plan.on_chip) plan.norm = NormBy::kOnChip;
  }
  if (splits) {
    bool const at_once =
        plan.norm == NormBy::kProductStatistics && repairs_and_merges(problem.m, problem.n, device);
    plan.repair = at_once ? Repair::kWithMerge : Repair::kRows;
  }
}

// The part to strike out where the launch of an SM90 kernel finds that it cannot run.
inline Part find_refused(Plan const& plan) {
  switch (plan.norm) {
    case NormBy::kGroup:
      return Part::kGroup;
    case NormBy::kStrips:
      return Part::kStrips;
    case NormBy::kProductStatistics:
      return Part::kStatistics;
    case NormBy::kNone:
    case NormBy::kColumns:
    case NormBy::kOnChip:
      break;
  }
  return plan.epilogue == names::kLogits ? Part::kLogits : Part::kProduct;
}

// Of a problem that is not empty. The rows of its operands are those that are given; those of an
// engine that splits rows are planned as the split ones lie.
inline Plan make_plan(Problem const& given, Tail const& tail, Device const& device,
                      Overrides const& overrides) {
  Problem problem = given;
  Plan plan;
  plan.splits = splits_rows(problem.math);
  if (plan.splits) problem.x = problem.weight = {problem.multiplied_k()};
  plan.epilogue = tail.epilogue;
  if (tail.kind == Tail::kBatchNorm) {
    plan_batch_norm(plan, problem, tail, device, overrides);
    return plan;
  }
  plan_product(plan, problem, device, overrides);
  if (plan.splits) plan.repair = Repair::kRows;
  if (tail.kind == Tail::kLogits && !plan.splits) {
    ProductPlan const product =
        choose_newest(problem, device, {nullptr, nullptr, overrides.struck});
    if (prefers_logits_tile(problem, product, device, overrides)) {
      constexpr int kTile = find_tile<sm90::Tiles, LogitsTile>();
      plan.copies = {};
      plan.product = {ProductBy::kTile, ArchId::kSm90, kTile,
                      estimate_tile(sm90::Tiles::kShapes[kTile], problem, device).raster};
      plan.epilogue = names::kLogits;
    }
  }
  return plan;
}

}  // namespace cutlass_fused
