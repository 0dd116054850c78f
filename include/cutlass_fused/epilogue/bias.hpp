// Bias:  y = acc + bias[n]
#pragma once

#include "cutlass_fused/epilogue/on_sm90.hpp"
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"

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

// leaky_relu((acc + bias) * 1, slope = 1), as rounded as acc + bias.
template <>
struct OnSm90<Bias> {
  using type = ScaleLeakyReLU;
  static ScaleLeakyReLU::Args convert(Bias::Args const& args) { return {args.bias, {}, 1.0f}; }
};

}  // namespace cutlass_fused
