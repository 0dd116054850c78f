// AddScaled:  y = alpha * acc + beta * c[m, n]
//
// Where beta is 0, c counts for nothing: NaN in it does not propagate, as PyTorch defines addmm. A
// caller whose beta is 0 hands no c, so that it is not read either.
#pragma once

#include <cmath>

#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused {

struct AddScaled {
  static constexpr char kName[] = "add_scaled";

  struct Fn {
    CUTLASS_FUSED_HOST_DEVICE float operator()(float acc, float c, float alpha, float beta) const {
      float const scaled = alpha * acc;
      return beta == 0.0f ? scaled : fmaf(beta, c, scaled);
    }
  };

  using Tree = cutlass_fused::Tree<Compute<Fn>,          // alpha * acc + beta * c
                                   Acc,                  //
                                   Tile<StridedMatrix>,  // c
                                   Scalar<float>,        // alpha
                                   Scalar<float>>;       // beta

  struct Args {
    StridedMatrix c;
    float alpha = 1.0f, beta = 1.0f;

    auto operands() const { return std::make_tuple(Empty{}, c, alpha, beta); }
  };
};

}  // namespace cutlass_fused
