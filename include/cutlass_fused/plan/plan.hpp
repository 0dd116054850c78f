// A plan: which kernels serve a call, as a value. make_plan.hpp makes it from host integers;
// src/launch/product.cpp and src/launch/linear_batch_norm_train.cpp execute it.
#pragma once

#include "cutlass_fused/epilogue/id.hpp"
#include "cutlass_fused/norm/on_chip/plan.hpp"
#include "cutlass_fused/plan/overrides.hpp"
#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// What stands behind a product.
struct Tail {
  enum Kind {
    kEpilogue,  // y = epilogue(x @ weight.T)
    kLogits,    // the same in fp32, for a softmax with a 16-bit result to read
    kBatchNorm  // z = (x @ weight.T + bias) * scale, and a batch norm of it in training
  };
  Kind kind = kEpilogue;
  EpilogueId epilogue = "";
  bool is_bare = false;  // the epilogue changes nothing: y = x @ weight.T

  // The rest concerns kBatchNorm. z is a tensor of its own only if `keeps_z`; else y is computed in
  // its place. It is returned less a shift for each column if it `has_centre`. `is_last`: y is the
  // normalized z itself; else 16 bits would be rounded to once more in front of what follows.
  bool keeps_z = false, has_centre = false, is_last = true;
  int y_alignment = 16;  // of the normalized y
};

// What multiplies. kUnknownTile: the forced tile cannot. kNone: nothing can (too little shared
// memory).
enum class ProductBy { kTile, kNarrow4, kNarrow2, kTf32x3, kSimt, kCublas, kUnknownTile, kNone };

struct ProductPlan {
  ProductBy by = ProductBy::kNone;
  ArchId arch = ArchId::kSm80;
  int tile = -1;  // of kTile: index into the generation's table; of kTf32x3: into its own
  Raster raster = {};
};

// Whether a kernel of the registry multiplies.
inline bool is_of_tiles(ProductPlan const& product) {
  return product.by == ProductBy::kTile || product.by == ProductBy::kNarrow4 ||
         product.by == ProductBy::kNarrow2;
}

// Rows that are copied to where they begin at multiples of 16 bytes, before or after the product:
// TMA reads and writes no others.
struct Copies {
  bool x = false, weight = false, y = false;
  bool operands() const { return x || weight; }
  bool any() const { return operands() || y; }
};

// Who finds the statistics of z, and who normalizes it.
enum class NormBy {
  kNone,               // there is no batch norm
  kColumns,            // kernels that read z twice
  kProductStatistics,  // the product finds the statistics of its tiles; a merge, then a pass over z
  kOnChip,             // one kernel that keeps z on chip
  kGroup,              // the product does it all
  kStrips              // the product's statistics, and a kernel that normalizes while it runs
};

// What repairs rows that a split lost.
enum class Repair { kNone, kRows, kWithMerge };

struct Plan {
  Copies copies;
  // Operands that lie along M or N are to be copied so that they lie along K, and the plan is that
  // of the copies: the caller asks again. Splits read either order.
  bool transposes = false;
  bool splits = false;   // rows of x and weight, in front of the product
  bool along_n = false;  // ... the weight along N, as it lies (choose_product.hpp)
  ProductPlan product;
  EpilogueId epilogue = "";     // of the product's kernel
  bool applies_behind = false;  // what the caller asks for is a pass behind the product alone
  Repair repair = Repair::kNone;
  NormBy norm = NormBy::kNone;
  bool shifts = false;  // z of 16 bits is stored less the shifts of its columns
  ClusterPlan on_chip;  // of kOnChip
};

}  // namespace cutlass_fused
