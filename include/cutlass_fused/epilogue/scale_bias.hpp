// ScaleBias:  z = (acc + bias[n]) * scale[n]
//
// What a batch norm in training stands behind. Only kernels that compute z's statistics have it:
// elsewhere ScaleLeakyReLU with a slope of 1 gives the same bits.
#pragma once

#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused {

struct ScaleBias {
  static constexpr char kName[] = "scale_bias";

  struct Fn {
    CUTLASS_FUSED_HOST_DEVICE float operator()(float acc, float bias, float scale) const {
      return (acc + bias) * scale;
    }
  };

  using Tree = cutlass_fused::Tree<Compute<Fn>, Acc, Row<Vector>, Row<Vector>>;

  struct Args {
    Vector bias = Vector::constant(0.0f);
    Vector scale = Vector::constant(1.0f);

    auto operands() const { return std::make_tuple(Empty{}, bias, scale); }
  };
};

}  // namespace cutlass_fused
