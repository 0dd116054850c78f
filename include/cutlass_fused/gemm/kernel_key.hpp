// From a plan to its product's kernel in the registry.
#pragma once

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/plan/plan.hpp"

namespace cutlass_fused {

// Whether a kernel of the registry multiplies, not cuBLAS or CUDA cores.
inline bool has_kernel(ProductPlan const& product) {
  return product.by == ProductBy::kTile || product.by == ProductBy::kNarrow4 ||
         product.by == ProductBy::kNarrow2;
}

// The key of a plan that has a kernel.
inline KernelKey make_kernel_key(Plan const& plan, Problem const& problem) {
  ProductPlan const& product = plan.product;
  int const tile = product.by == ProductBy::kNarrow4   ? kNarrow4Tile
                   : product.by == ProductBy::kNarrow2 ? kNarrow2Tile
                                                       : product.tile;
  // Split rows lie along K, whatever they were split from, but for those of some weights.
  Majors const of_split{Major::kK, plan.along_n ? Major::kMn : Major::kK};
  Majors const majors = plan.splits ? of_split : Majors{problem.x.major, problem.weight.major};
  return {product.arch, problem.math, majors, tile, plan.epilogue};
}

}  // namespace cutlass_fused
