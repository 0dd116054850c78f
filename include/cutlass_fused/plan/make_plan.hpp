// make_plan: which kernels serve a call. A pure function over host integers.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/simt/run.hpp"
#include "cutlass_fused/plan/choose_cublas.hpp"
#include "cutlass_fused/plan/choose_fp32.hpp"
#include "cutlass_fused/plan/plan_batch_norm.hpp"

namespace cutlass_fused {

// Whether a product of fp32 matrices runs on rows that are split into fp16 numbers, not on CUDA
// cores. At a K of 32 plain fp32 has the smaller error, at 36 split numbers have; memory is the
// limit there under any precision.
inline bool splits_for(int64_t k) {
  return k > kShortK &&
         fits_kernels(1, 1, Problem{MathId::kFp16x3, 1, 1, k, DataType::kFloat32}.multiplied_k());
}

// The Math row of a product of matrices of this type: the first in the table of this precision,
// else of any, that serves so long a K. CUDA cores serve every K of fp32.
inline MathId choose_math(DataType type, Precision precision, int64_t k) {
  bool const splits = splits_for(k);
  for (bool any_precision : {false, true}) {
    for (MathId math : kMathIds) {
      MathSpec const& row = spec_of(math);
      bool const serves = row.type == type && (splits || !splits_rows(math));
      if (serves && (any_precision || row.precision == precision)) return math;
    }
  }
  __builtin_unreachable();
}

// The kernel with fp32 results for a softmax, where one is cheaper than that which serves others;
// else kNone.
inline ProductPlan choose_logits(Problem const& problem, Device const& device,
                                 Overrides const& overrides) {
  if (overrides.forced != nullptr || overrides.struck.has(Part::kLogits)) return {};
  ProductPlan const product = choose_newest(problem, device, {nullptr, nullptr, overrides.struck});
  ArchSpec const& arch = spec_of(product.arch);
  if (product.by != ProductBy::kTile || arch.choose_logits == nullptr) return {};
  return arch.choose_logits(problem, product, device);
}

// The part to strike out where the launch of a kernel of a newer generation than SM80 finds that it
// cannot run.
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

// What multiplies the operands as they lie, instead of kernels that read rows along K; else kNone.
// `overrides`: those that say something of 16-bit matrices too.
inline ProductPlan choose_as_they_lie(Problem const& given, Tail const& tail, Device const& device,
                                      Overrides const& given_overrides,
                                      Overrides const& overrides) {
  ProductPlan const narrow = choose_cublas_16_bit(given, tail, device, overrides);
  if (narrow.by != ProductBy::kNone) return narrow;
  ProductPlan const wide = choose_cublas_fp32(given, tail, device, given_overrides);
  if (wide.by != ProductBy::kNone) return wide;
  return choose_over_split_rows(given, tail, device, given_overrides);
}

// As if every kernel had the epilogue.
inline Plan plan_with_epilogue(Problem const& given, Tail const& tail, Device const& device,
                               Overrides const& given_overrides) {
  Problem problem = given;
  Plan plan;
  Overrides overrides = given_overrides;
  if (overrides.forced != nullptr && overrides.forced->tile.empty() &&
      (overrides.forced->splits_rows || overrides.forced->tf32x3)) {
    overrides.forced = nullptr;
  }
  plan.splits = splits_rows(problem.math);
  if (plan.splits) problem = parts_of(given, /*along_n=*/false);
  plan.epilogue = tail.epilogue;
  if (tail.kind == Tail::kBatchNorm) {
    plan_batch_norm(plan, problem, tail, device, overrides);
    return plan;
  }
  if (plan.splits) {
    SplitChoice const choice = choose_split(
        given, tail.epilogue, device,
        [&](Problem const& parts) { return choose_product(parts, device, overrides); });
    plan.product = choice.product;
    plan.along_n = choice.along_n;
  } else {
    plan_product(plan, problem, device, overrides);
  }
  ProductPlan whole = choose_as_they_lie(given, tail, device, given_overrides, overrides);
  if (whole.by != ProductBy::kNone) {
    plan.copies = {};
    plan.splits = plan.along_n = false;
    plan.product = whole;
    return plan;
  }
  bool const reads_any_order =
      plan.splits ? is_of_tiles(plan.product)
                  : plan.product.by == ProductBy::kSimt && reads_any_major(problem.k);
  plan.transposes = lies_along_mn(given) && !reads_any_order;
  if (plan.splits) plan.repair = Repair::kRows;
  if (tail.kind == Tail::kLogits && !plan.splits) {
    ProductPlan const logits = choose_logits(problem, device, overrides);
    if (logits.by == ProductBy::kTile) {
      plan.copies = {};
      plan.product = logits;
      plan.epilogue = names::kLogits;
    }
  }
  return plan;
}

// The problem is not empty. The rows of its operands are those that are given; those of an engine
// that splits rows are planned as the split ones lie.
inline Plan make_plan(Problem const& problem, Tail const& tail, Device const& device,
                      Overrides const& overrides) {
  Plan plan = plan_with_epilogue(problem, tail, device, overrides);
  // A tile that was forced, or found by timing, is not estimated.
  bool const is_estimated =
      overrides.forced == nullptr && (overrides.tuned == nullptr || !overrides.tuned->tf32x3);
  bool const is_behind = plan.epilogue == names::kOpen && is_estimated &&
                         is_slower_within(plan.product, problem, tail, device);
  if (is_behind || !is_compiled_with(plan.epilogue, plan.product, problem, device)) {
    part_from_epilogue(plan);
  }
  return plan;
}

// The plan with each tile that has a kernel with its epilogue, the cheapest first: what may serve
// where the kernel of its own is not there.
inline std::vector<Plan> list_other_tiles(Plan const& plan, Problem const& problem,
                                          Device const& device) {
  if (plan.product.by != ProductBy::kTf32x3) return list_with_tiles(plan, problem, device);
  std::vector<Plan> plans;
  if (plan.applies_behind) return plans;
  for (ProductPlan const& product : list_plans_tf32x3(problem, device)) {
    if (!is_compiled_with(plan.epilogue, product, problem, device)) continue;
    plans.push_back(plan);
    plans.back().product = product;
  }
  return plans;
}

}  // namespace cutlass_fused
