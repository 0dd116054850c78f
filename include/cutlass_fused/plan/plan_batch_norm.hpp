// The plan of a batch norm in training behind a product: who finds the statistics, and who
// normalizes: the product's kernel, those behind it, or both. A pure function over host integers.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/fp16x3/repair_and_merge.hpp"
#include "cutlass_fused/gemm/sm80/statistics_tile.hpp"
#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// By the kernels that would serve the product alone, by the estimates; unless a tile is forced,
// which is one of a product alone.
inline NormPlan plan_norm_of_newest(Problem const& problem, NormWishes const& wishes,
                                    Device const& device, Overrides const& overrides) {
  if (overrides.forced != nullptr) return {};
  // Not by the one that a product alone was tuned to.
  ProductPlan const product = choose_newest(problem, device, {nullptr, nullptr, overrides.struck});
  ArchSpec const& arch = spec_of(product.arch);
  if (product.by != ProductBy::kTile || arch.plan_norm == nullptr) return {};
  return arch.plan_norm(problem, product, wishes, device, overrides.struck);
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
  if (problem.engine() == Engine::kSimt) {
    plan.product = {ProductBy::kSimt};
  } else {
    bool const may_shift = !narrow || !as_it_is;
    NormPlan const found = plan_norm_of_newest(
        problem,
        {tail.keeps_z, splits || may_shift, tail.is_last && !as_it_is && tail.y_alignment == 16},
        device, overrides);
    plan.norm = found.by;
    plan.product = found.product;
    if (plan.norm == NormBy::kGroup) {
      plan.shifts = false;  // z is in no memory
      plan.epilogue = names::kBatchNormInGroup;
      return;
    }
    if (plan.norm == NormBy::kColumns) {
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

}  // namespace cutlass_fused
