// A plan in words, for CUTLASS_FUSED_LOG=1 and for tests.
#pragma once

#include <string>

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/tf32x3/spec.hpp"
#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

inline std::string describe_kernel(ProductPlan const& product, MathId math) {
  switch (product.by) {
    case ProductBy::kTile:
      return name_tile(product, math);
    case ProductBy::kNarrow4:
      return "rows aligned to 4 bytes";
    case ProductBy::kNarrow2:
      return "rows aligned to 2 bytes";
    case ProductBy::kTf32x3:
      return TilesTf32x3::kShapes[product.tile].name() + "@" + product.raster.name();
    case ProductBy::kSimt:
      return "simt";
    case ProductBy::kCublas:
      return kCublasName;
    case ProductBy::kUnknownTile:
      return "refused";
    case ProductBy::kNone:
      break;
  }
  return "none";
}

inline char const* describe_arch(ProductPlan const& product) {
  switch (product.by) {
    case ProductBy::kTf32x3:
      return kTf32x3Name;
    case ProductBy::kSimt:
      return "simt";
    case ProductBy::kCublas:
      return kCublasName;
    default:
      return spec_of(product.arch).name;
  }
}

// What is multiplied: the numbers of a Math row, or fp32 matrices as they lie.
inline char const* describe_math(ProductPlan const& product, MathId math) {
  MathSpec const& row = spec_of(math);
  bool const by_cublas = product.by == ProductBy::kCublas && row.type == DataType::kFloat32;
  if (by_cublas && row.precision == Precision::kTf32) return "tf32";
  return by_cublas || product.by == ProductBy::kTf32x3 ? spec_of(MathId::kFp32).name : row.name;
}

inline char const* describe_norm(NormBy by) {
  switch (by) {
    case NormBy::kNone:
      return "";
    case NormBy::kColumns:
      return "; statistics: columns";
    case NormBy::kProductStatistics:
      return "; statistics: product";
    case NormBy::kOnChip:
      return "; statistics: on chip";
    case NormBy::kGroup:
      return "; statistics: group";
    case NormBy::kStrips:
      return "; statistics: strips";
  }
  return "";
}

inline char const* describe_repair(Repair repair) {
  switch (repair) {
    case Repair::kNone:
      return "";
    case Repair::kRows:
      return "; repair of rows";
    case Repair::kWithMerge:
      return "; repair with the merge";
  }
  return "";
}

// "128x256x128B/2x1.cooperative.swapped@m1; statistics: product; z less shifts"
inline std::string describe(Plan const& plan, MathId math) {
  ProductPlan const& product = plan.product;
  std::string text = plan.norm == NormBy::kGroup
                         ? spec_of(product.arch).name_group_tile() + "@" + product.raster.name()
                         : describe_kernel(product, math);
  if (plan.epilogue == names::kLogits) text += "; logits in fp32";
  if (plan.epilogue == names::kOpen) text += "; program within";
  if (plan.along_n) text += "; weight split along N";
  if (plan.copies.x) text += "; x copied";
  if (plan.copies.weight) text += "; weight copied";
  if (plan.copies.y) text += "; y copied";
  text += describe_norm(plan.norm);
  if (plan.shifts) text += "; z less shifts";
  bool const multiplies = product.by != ProductBy::kUnknownTile && product.by != ProductBy::kNone;
  if (!multiplies) return text;
  text += describe_repair(plan.repair);
  return plan.applies_behind ? text + "; epilogue behind" : text;
}

}  // namespace cutlass_fused
