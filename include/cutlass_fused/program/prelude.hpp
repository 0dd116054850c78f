// The device functions that printed programs call, each beside its formula. They are text: only a
// compiler for GPUs reads them.
//
// A last product is __fmul_rn and a first sum __fadd_rn, as program/words.hpp says of lines. Where
// one of two results takes long, an instruction of program/prelude_16.hpp chooses.
#pragma once

#include <string_view>

namespace cutlass_fused::program {

constexpr std::string_view kPrelude[] = {
    // (0 < x) - (x < 0): 0 of NaN.
    R"(
__device__ __forceinline__ float cutlass_fused_sign(float const x) {
  return float((0.0f < x) - (x < 0.0f));
})",

    // max(x, 0), where NaN and -0 stay what they are. CUDA kernels up to PyTorch 2.11 return 0 of
    // -0.
    R"(
__device__ __forceinline__ float cutlass_fused_relu(float const x) {
  return x < 0.0f ? 0.0f : x;
})",

    // 1 / (1 + exp(-x)), to an ulp of the quotient. A division has a branch.
    R"(
__device__ __forceinline__ float cutlass_fused_sigmoid(float const x) {
  return cutlass_fused_approx_reciprocal(__fadd_rn(1.0f, expf(-x)));
})",

    // x / 2 * (1 + erf(x / sqrt(2)))
    R"(
__device__ __forceinline__ float cutlass_fused_gelu(float const x) {
  return __fmul_rn(x * 0.5f, 1.0f + erff(x * 0.70710678118654752f));
})",

    // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
    R"(
__device__ __forceinline__ float cutlass_fused_gelu_tanh(float const x) {
  float const inner = 0.79788456080286536f * fmaf(0.044715f, x * x * x, x);
  return __fmul_rn(0.5f * x, 1.0f + tanhf(inner));
})",

    // x * min(max(x + 3, 0), 6) / 6, where NaN stays NaN.
    R"(
__device__ __forceinline__ float cutlass_fused_hardswish(float const x) {
  float const shifted = __fadd_rn(x, 3.0f);
  float const above = shifted < 0.0f ? 0.0f : shifted;
  return __fmul_rn(x * (6.0f < above ? 6.0f : above), 1.0f / 6.0f);
})",

    // min(max(x + 3, 0), 6) / 6, where NaN stays NaN.
    R"(
__device__ __forceinline__ float cutlass_fused_hardsigmoid(float const x) {
  float const shifted = __fadd_rn(x, 3.0f);
  float const above = shifted < 0.0f ? 0.0f : shifted;
  return __fmul_rn(6.0f < above ? 6.0f : above, 1.0f / 6.0f);
})",

    // x * tanh(log(1 + e)) = x * n / (n + 2) with e = exp(x), n = e * (e + 2). Above 20 the second
    // factor is 1. The quotient is corrected once, which leaves it the error of a division.
    R"(
__device__ __forceinline__ float cutlass_fused_mish(float const x) {
  float const power = expf(fminf(x, 20.0f));
  float const n = power * __fadd_rn(power, 2.0f), whole = __fadd_rn(n, 2.0f);
  float const part = __fdividef(1.0f, whole);
  float const quotient = n * part;
  return __fmul_rn(x, fmaf(fmaf(-quotient, whole, n), part, quotient));
})",

    // log(1 + x) of an x that is not negative. 1 + x = 2^e * m, with an m of 2/3 to 4/3, to which
    // what the sum has lost of x is added; log(m) = z + z^2 * q(z) with z = m - 1, where q was
    // fitted: to 2^-27 of the result. All of it errs by 2^-22.6 of that at most. CUDA's has a
    // branch, behind which the assembler computes one element after the other.
    R"(
__device__ __forceinline__ float cutlass_fused_log1p_of_positive(float const x) {
  float const sum = __fadd_rn(1.0f, x);
  float const lost = x < 1e30f ? __fsub_rn(x, __fsub_rn(sum, 1.0f)) : 0.0f;
  int const exponent = (__float_as_int(sum) - 0x3f2aaaab) & 0xff800000;
  float const m = __int_as_float(__float_as_int(sum) - exponent);
  float const z = fmaf(lost, __int_as_float(0x3f800000 - exponent), __fsub_rn(m, 1.0f));
  float q = fmaf(-0.12950927f, z, 0.140066639f);
  q = fmaf(q, z, -0.121667393f);
  q = fmaf(q, z, 0.140008092f);
  q = fmaf(q, z, -0.166823342f);
  q = fmaf(q, z, 0.200107664f);
  q = fmaf(q, z, -0.249997169f);
  q = fmaf(q, z, 0.333332092f);
  q = fmaf(q, z, -0.5f);
  float const log = fmaf(float(exponent) * 1.1920929e-7f, 0.693147182f, fmaf(z * z, q, z));
  return x <= 3.40282347e38f ? log : x;
})",

    // min(x, 0) - log(1 + exp(-|x|)), which overflows nowhere.
    R"(
__device__ __forceinline__ float cutlass_fused_log_sigmoid(float const x) {
  return __fsub_rn(fminf(0.0f, x), cutlass_fused_log1p_of_positive(expf(-fabsf(x))));
})",

    // The larger, or NaN if either is. On a GPU 0 is above -0; CPU kernels return either.
    R"(
__device__ __forceinline__ float cutlass_fused_maximum(float const x, float const y) {
  return x != x ? x : y != y ? y : fmaxf(x, y);
})",

    R"(
__device__ __forceinline__ float cutlass_fused_minimum(float const x, float const y) {
  return x != x ? x : y != y ? y : fminf(x, y);
})",

    // What x lacks of a multiple of y, with the sign of y. A zero has the sign of x.
    R"(
__device__ __forceinline__ float cutlass_fused_remainder(float const x, float const y) {
  float const rest = fmodf(x, y);
  bool const is_across = rest != 0.0f && (y < 0.0f) != (rest < 0.0f);
  return is_across ? __fadd_rn(rest, y) : rest;
})",

    // NaN takes the second branch.
    R"(
__device__ __forceinline__ float cutlass_fused_leaky_relu(float const x, float const slope) {
  return x > 0.0f ? x : __fmul_rn(x, slope);
})",

    // scale * (x > 0 ? x : alpha * (exp(x * input_scale) - 1))
    R"(
__device__ __forceinline__ float cutlass_fused_elu(float const x, float const alpha,
                                                   float const scale, float const input_scale) {
  float const below = __fmul_rn(expm1f(x * input_scale), alpha * scale);
  return cutlass_fused_if_less(0.0f, x, __fmul_rn(x, scale), below);
})",

    // log(1 + exp(x * beta)) / beta, and x itself above the threshold.
    R"(
__device__ __forceinline__ float cutlass_fused_softplus(float const x, float const beta,
                                                        float const threshold) {
  float const scaled = x * beta;
  float const below = cutlass_fused_log1p_of_positive(expf(scaled)) / beta;
  return cutlass_fused_if_less(threshold, scaled, x, below);
})",

    // min(max(x, low), high), or NaN if any is. An x that equals a bound is returned, not the
    // bound:
    // of zeros that counts, and CUDA kernels up to PyTorch 2.11 return the upper one.
    R"(
__device__ __forceinline__ float cutlass_fused_clamp(float const x, float const low,
                                                     float const high) {
  if (low != low || high != high) return __int_as_float(0x7fc00000);
  float const above = x < low ? low : x;
  return high < above ? high : above;
})",
};

// "cutlass_fused_sign": what stands before the first bracket.
constexpr std::string_view name_of_function(std::string_view text) {
  std::string_view const head = text.substr(0, text.find('('));
  return head.substr(head.rfind(' ') + 1);
}

}  // namespace cutlass_fused::program
