// The device functions that printed programs call, each beside its formula. They are text: only a
// compiler for GPUs reads them.
//
// A last product is __fmul_rn and a first sum __fadd_rn, as program/words.hpp says of lines.
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

    // x * tanh(log(1 + exp(x)))
    R"(
__device__ __forceinline__ float cutlass_fused_mish(float const x) {
  return __fmul_rn(x, tanhf(log1pf(expf(x))));
})",

    // min(x, 0) - log(1 + exp(-|x|)), which overflows nowhere.
    R"(
__device__ __forceinline__ float cutlass_fused_log_sigmoid(float const x) {
  return fminf(0.0f, x) - log1pf(expf(-fabsf(x)));
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
  return x > 0.0f ? __fmul_rn(x, scale) : __fmul_rn(expm1f(x * input_scale), alpha * scale);
})",

    // log(1 + exp(x * beta)) / beta, and x itself above the threshold.
    R"(
__device__ __forceinline__ float cutlass_fused_softplus(float const x, float const beta,
                                                        float const threshold) {
  return x * beta > threshold ? x : log1pf(expf(x * beta)) / beta;
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
