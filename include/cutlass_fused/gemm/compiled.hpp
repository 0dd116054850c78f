// Which kernels are compiled with an epilogue. Most epilogues have all that their element types ask
// for. AddScaled has those that pay for the time of a build; behind others it is a pass of its own.
// An open epilogue (epilogue/open/) has the tiles of generations whose ArchSpec says so, and for
// compute capability 9.0 some of tf32x3.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/tf32x3/majors.hpp"
#include "cutlass_fused/gemm/tf32x3/spec.hpp"
#include "cutlass_fused/plan/archs.hpp"
#include "cutlass_fused/plan/costs/cublas_fp32.hpp"
#include "cutlass_fused/plan/plan.hpp"

namespace cutlass_fused {

// Whether products of matrices that lie in either order have the epilogue.
inline bool serves_any_major(EpilogueId const& epilogue) {
  return epilogue == names::kScaleLeakyReLU || epilogue == names::kAddScaled;
}

// Whether an operand does not lie along K, as those of a layer do.
inline bool lies_along_mn(Problem const& problem) {
  return problem.x.major == Major::kMn || problem.weight.major == Major::kMn;
}

// Whether a GPU that runs these generations runs open kernels of tf32x3 (find_open_tf32x3).
inline bool runs_open_tf32x3(ArchSet const& archs) { return archs.has(ArchId::kSm90); }

// Whether a program within a product of tf32x3 has a kernel.
inline bool has_open_tf32x3(ProductPlan const& product, Problem const& problem,
                            Device const& device) {
  TileShapeTf32x3 const& tile = TilesTf32x3::kShapes[product.tile];
  return runs_open_tf32x3(device.archs) && tile.arch == ArchId::kSm80 && !lies_along_mn(problem) &&
         has_whole_pieces(problem.x) && has_whole_pieces(problem.weight) &&
         problem.y_type == DataType::kFloat32 &&
         has_one_part(tile, product.raster.count, problem, device);
}

// Whether such a product takes longer than one by any tile, some of which have no open kernel, and
// a pass behind it.
inline bool is_slower_within(ProductPlan const& product, Problem const& problem, Tail const& tail,
                             Device const& device) {
  if (product.by != ProductBy::kTf32x3) return false;
  TileShapeTf32x3 const& tile = TilesTf32x3::kShapes[product.tile];
  return tile_cost_tf32x3(tile, product.raster.count, problem, device) >
         choose_tf32x3(problem, device).cost_ns + cost_of_epilogue(problem, tail);
}

// `problem`: of the matrices as they lie. AddScaled has the tiles that a generation's ArchSpec
// says, and of tf32x3 what takes three products and reads whole pieces in the orders of layers:
// src/kernels/table.py compiles the same.
inline bool is_compiled_with(EpilogueId const& epilogue, ProductPlan const& product,
                             Problem const& problem, Device const& device) {
  if (epilogue == names::kOpen) {
    if (product.by == ProductBy::kTf32x3) return has_open_tf32x3(product, problem, device);
    return product.by == ProductBy::kTile && spec_of(product.arch).has_open;
  }
  if (!(epilogue == names::kAddScaled)) return true;
  switch (product.by) {
    case ProductBy::kTile:
      return spec_of(product.arch).has_add_scaled != nullptr &&
             spec_of(product.arch).has_add_scaled(problem.math);
    case ProductBy::kTf32x3:
      return is_of_layers(problem.x.major, problem.weight.major) && has_whole_pieces(problem.x) &&
             has_whole_pieces(problem.weight) &&
             spec_of(problem.math).precision == Precision::kIeee;
    case ProductBy::kNarrow4:
    case ProductBy::kNarrow2:
      return false;
    case ProductBy::kSimt:
    case ProductBy::kCublas:
    case ProductBy::kUnknownTile:
    case ProductBy::kNone:
      break;
  }
  return true;
}

// The product's kernel writes the product alone, by the epilogue that a bias has.
inline void part_from_epilogue(Plan& plan) {
  plan.epilogue = names::kScaleLeakyReLU;
  plan.applies_behind = true;
}

}  // namespace cutlass_fused
