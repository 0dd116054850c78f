// How an fp32 operand becomes two TF32 parts for the engine tf32x3: x = big + small.
//
// CUTLASS truncates `big`. Rounded to nearest instead, it leaves a signed remainder of half the
// size, so that the 11 bits of `small` reach one bit further and the product small * small, which
// the engine leaves out, is four times smaller.
#pragma once

#include <cuda_runtime.h>

#include "cutlass/numeric_conversion.h"

namespace cutlass_fused {

// The fp32 number nearest to x among those with TF32's 10 explicit bits of significand.
CUTLASS_HOST_DEVICE float round_to_tf32(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t rounded;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));  // one instruction, since sm_90
  return __uint_as_float(rounded);
#elif defined(__CUDA_ARCH__)
  // Half a TF32 ulp is 2^-11 of the power of two below |x|, which is x without its significand.
  // Ties go away from zero. Infinities and NaN stay what they are; subnormals are truncated.
  float const power = __uint_as_float(__float_as_uint(x) & 0xff800000u);
  return __uint_as_float(__float_as_uint(fmaf(power, 0x1p-11f, x)) & 0xffffe000u);
#else
  return float(cutlass::NumericConverter<cutlass::tfloat32_t, float,
                                         cutlass::FloatRoundStyle::round_to_nearest>::convert(x));
#endif
}

}  // namespace cutlass_fused

// The converter that CUTLASS's MmaTensorOpFastF32 uses: its two rounding styles are fixed there, so
// this pair of them is what has to mean "nearest".
template <>
struct cutlass::NumericConverterFastF32<cutlass::FloatRoundStyle::round_toward_zero,
                                        cutlass::FloatRoundStyle::round_half_ulp_truncate> {
  using result_type = cutlass::Array<cutlass::tfloat32_t, 2>;
  using source_type = float;

  CUTLASS_HOST_DEVICE static result_type convert(float x) {
    float const big = cutlass_fused::round_to_tf32(x);
    result_type parts;
    parts[0] = cutlass::tfloat32_t::bitcast(reinterpret_cast<uint32_t const&>(big));
    // Exact, of 12 bits at most. The instruction takes the upper 11: an error of 2^-24 |x| or less
    // for most x, which rounding would halve at the price of two more instructions per element.
    float const small = x - big;
    parts[1] = cutlass::tfloat32_t::bitcast(reinterpret_cast<uint32_t const&>(small));
    return parts;
  }

  CUTLASS_HOST_DEVICE result_type operator()(float x) const { return convert(x); }
};
