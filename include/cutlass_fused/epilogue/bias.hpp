// Bias:  y = acc + bias[n]
#pragma once

#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused {

struct Bias {
  static constexpr char kName[] = "bias";

  struct Fn {
    CUTLASS_FUSED_HOST_DEVICE float operator()(float acc, float bias) const { return acc + bias; }
  };

  using Tree = cutlass_fused::Tree<Compute<Fn>,   // acc + bias
                                   Acc,           //
                                   Row<Vector>>;  // bias

  struct Args {
    Vector bias = Vector::constant(0.0f);

    auto operands() const { return std::make_tuple(Empty{}, bias); }
  };
};

}  // namespace cutlass_fused
