// A bias alone:  y = acc + bias[n]
//
// No epilogue of its own, for which every product would be compiled once more: a scale and a slope
// of 1 change no bit.
#pragma once

#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"

namespace cutlass_fused {

inline ScaleLeakyReLU::Args bias_alone(Vector const& bias) { return {bias, {}, 1.0f}; }

}  // namespace cutlass_fused
