// ScaleLeakyReLU:  v = (acc + bias[n]) * scale[n] * multiplier
//                  y = v > 0 ? v : v * slope
//
// The slope is an operand of our own functor: CUTLASS's LeakyReLU silently becomes plain ReLU in
// a 2.x visitor tree. Written with `v > 0` as PyTorch does, so that NaN takes the second branch
// and stays NaN, and so do infinities times a slope of zero.
#pragma once

#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused {

// scale[n] * multiplier, so that a number and a tensor are one operand.
struct ScaledVector {
  Vector scale = Vector::constant(1.0f);
  float multiplier = 1.0f;

  using Raw = Vector::Raw;
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t n) const { return scale.fetch(n); }
  CUTLASS_FUSED_HOST_DEVICE float convert(Raw raw) const { return scale.convert(raw) * multiplier; }
};

struct ScaleLeakyReLU {
  static constexpr char kName[] = "scale_leaky_relu";

  struct Fn {
    CUTLASS_FUSED_HOST_DEVICE float operator()(float acc, float bias, float scale,
                                               float slope) const {
      float const v = (acc + bias) * scale;
      return v > 0.0f ? v : v * slope;
    }
  };

  using Tree = cutlass_fused::Tree<Compute<Fn>,        // leaky_relu((acc + bias) * scale, slope)
                                   Acc,                //
                                   Row<Vector>,        // bias
                                   Row<ScaledVector>,  // scale * multiplier
                                   Scalar<float>>;     // slope

  struct Args {
    Vector bias = Vector::constant(0.0f);
    ScaledVector scale;
    float slope = 0.01f;

    auto operands() const { return std::make_tuple(Empty{}, bias, scale, slope); }
  };
};

}  // namespace cutlass_fused
