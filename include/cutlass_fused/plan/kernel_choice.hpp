// What a choice of a kernel says. How it comes about (choice.hpp, choice_sm90.hpp) is no concern of
// the kernels' files: a heuristic that is tuned compiles no kernel again.
#pragma once

#include "cutlass_fused/gemm/sm90/raster.hpp"

namespace cutlass_fused {

// kSimt: there is nothing to multiply. kCublas: the product by cuBLAS, and the epilogue behind it.
// kNone: no kernel can (too little shared memory).
enum class KernelKind { kAligned, kNarrow4, kNarrow2, kSimt, kCublas, kUnknownTile, kNone };

struct Choice {
  KernelKind kind;
  int tile;       // index into the architecture's table, for kAligned
  Raster raster;  // of an SM90 kernel
};

}  // namespace cutlass_fused
