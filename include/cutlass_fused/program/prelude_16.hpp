// The device functions of programs whose results are rounded to 16 bits: to 2^-14 of each result,
// where the rounding takes 2^-12 (fp16) or 2^-9 (bf16) of it. NaN, infinities, zeros with their
// signs and limits are those of program/prelude.hpp. What is below 2^-120 may become 0.
//
// None has a branch, or the assembler would compute one element after the other: within a product
// two warps of a quarter of an SM alone hide how long each instruction takes. Special functions are
// few, since each takes as long as eight other instructions. tests/link/test_functions_16.py has
// their errors, with what the PTX ISA says of those instructions taken at its worst.
#pragma once

#include <string_view>

#include "cutlass_fused/program/words.hpp"

namespace cutlass_fused::program {

// What is printed in place of program/words.hpp's.
struct Word16 {
  std::string_view name, printed;
};

constexpr Word16 kWords16[] = {
    {"sqrt", "cutlass_fused_approx_sqrt($0)"},
    {"reciprocal", "cutlass_fused_approx_reciprocal($0)"},
    {"div", "cutlass_fused_approx_quotient($0, $1)"},  // by a number: program/print.hpp
    {"exp", "cutlass_fused_exp_16($0)"},
    {"exp2", "cutlass_fused_approx_exp2($0)"},
    {"expm1", "cutlass_fused_expm1_16($0)"},
    {"log", "__fmul_rn(0.693147181f, cutlass_fused_log2_16($0))"},
    {"log2", "cutlass_fused_log2_16($0)"},
    {"log10", "__fmul_rn(0.301029996f, cutlass_fused_log2_16($0))"},
    {"log1p", "cutlass_fused_log1p_16($0)"},
    {"tanh", "cutlass_fused_tanh_16($0)"},
    {"sigmoid", "cutlass_fused_sigmoid_16($0)"},
    {"erf", "cutlass_fused_erf_16($0)"},
    {"erfc", "cutlass_fused_erfc_16($0)"},
    {"gelu", "cutlass_fused_gelu_16($0)"},
    {"gelu_tanh", "cutlass_fused_gelu_tanh_16($0)"},
    {"silu", "__fmul_rn($0, cutlass_fused_sigmoid_16($0))"},
    {"mish", "cutlass_fused_mish_16($0)"},
    {"log_sigmoid", "cutlass_fused_log_sigmoid_16($0)"},
    {"elu", "cutlass_fused_elu_16($0, $1, $2, $3)"},
    {"softplus", "cutlass_fused_softplus_16($0, $1, $2)"},
    {"maximum", "cutlass_fused_maximum_or_nan($0, $1)"},
    {"minimum", "cutlass_fused_minimum_or_nan($0, $1)"},
};

// Null: it is printed as for fp32.
constexpr Word16 const* find_word_16(std::string_view name) {
  for (Word16 const& word : kWords16) {
    if (word.name == name) return &word;
  }
  return nullptr;
}

constexpr bool are_words() {
  for (Word16 const& word : kWords16) {
    if (find_word(word.name) == nullptr || find_word_16(word.name) != &word) return false;
  }
  return true;
}
static_assert(are_words());

// x^exponent of any x, where the error of the logarithm stays below 2^-14.
constexpr double kMostExponent16 = 64;

// The instructions, for a compiler of a GPU's code; tests have others, which a host compiler reads.
constexpr std::string_view kInstructions[] = {
    R"(
__device__ __forceinline__ float cutlass_fused_approx_exp2(float const x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
})",

    R"(
__device__ __forceinline__ float cutlass_fused_approx_log2(float const x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
})",

    R"(
__device__ __forceinline__ float cutlass_fused_approx_sqrt(float const x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
})",

    R"(
__device__ __forceinline__ float cutlass_fused_approx_reciprocal(float const x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
})",

    // Of an x from 2^-126 to 2^126, and 0 of a larger one.
    R"(
__device__ __forceinline__ float cutlass_fused_approx_reciprocal_of_normal(float const x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
})",

    R"(
__device__ __forceinline__ float cutlass_fused_approx_quotient(float const x, float const y) {
  float z;
  asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
})",

    R"(
__device__ __forceinline__ float cutlass_fused_maximum_or_nan(float const x, float const y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
})",

    R"(
__device__ __forceinline__ float cutlass_fused_minimum_or_nan(float const x, float const y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
})",

    // The third where x is less than y, else the fourth: of ?: a compiler makes a branch, so that
    // it computes one of them alone.
    R"(
__device__ __forceinline__ float cutlass_fused_if_less(float const x, float const y,
                                                       float const is_less, float const is_not) {
  float z;
  asm("{\n.reg .pred less;\nsetp.lt.f32 less, %1, %2;\nselp.f32 %0, %3, %4, less;\n}"
      : "=f"(z)
      : "f"(x), "f"(y), "f"(is_less), "f"(is_not));
  return z;
})",
};

// In front of those that call them.
constexpr std::string_view kPrelude16[] = {
    R"(
__device__ __forceinline__ float cutlass_fused_exp_16(float const x) {
  return cutlass_fused_approx_exp2(x * 1.44269504f);
})",

    // exp(x) - 1, and x + x^2 / 2 + x^3 / 6 where that would be what is left of 1.
    R"(
__device__ __forceinline__ float cutlass_fused_expm1_16(float const x) {
  float const near = x * fmaf(x, fmaf(x, 0.166666667f, 0.5f), 1.0f);
  float const far = __fadd_rn(cutlass_fused_approx_exp2(x * 1.44269504f), -1.0f);
  return cutlass_fused_if_less(fabsf(x), 0.0625f, near, far);
})",

    // With the series about 1, where the instruction's error is absolute.
    R"(
__device__ __forceinline__ float cutlass_fused_log2_16(float const x) {
  float const rest = __fadd_rn(x, -1.0f);
  float const series =
      fmaf(rest, fmaf(rest, fmaf(rest, -0.360673760f, 0.480898347f), -0.721347520f), 1.44269504f);
  return cutlass_fused_if_less(fabsf(rest), 0.0625f, rest * series, cutlass_fused_approx_log2(x));
})",

    R"(
__device__ __forceinline__ float cutlass_fused_log1p_16(float const x) {
  float const series = fmaf(x, fmaf(x, fmaf(x, -0.25f, 0.333333333f), -0.5f), 1.0f);
  float const far = 0.693147181f * cutlass_fused_approx_log2(__fadd_rn(1.0f, x));
  return cutlass_fused_if_less(fabsf(x), 0.0625f, x * series, far);
})",

    // 1 / (1 + exp(-x)), as 2^-8 / (2^-8 + 2^-8 exp(-x)): the reciprocal is then no instruction's
    // 0 where x times the result is still above 2^-120.
    R"(
__device__ __forceinline__ float cutlass_fused_sigmoid_16(float const x) {
  float const power = cutlass_fused_approx_exp2(fmaf(x, -1.44269504f, -8.0f));
  return __fmul_rn(0.00390625f, cutlass_fused_approx_reciprocal_of_normal(
                                    __fadd_rn(0.00390625f, power)));
})",

    // 1 - 2 / (1 + exp(2 |x|)) with the sign of x, and a polynomial near 0.
    R"(
__device__ __forceinline__ float cutlass_fused_tanh_16(float const x) {
  float const power = cutlass_fused_approx_exp2(fabsf(x) * -2.88539008f);
  float const part = power * cutlass_fused_approx_reciprocal_of_normal(__fadd_rn(1.0f, power));
  float const square = x * x;
  float const near = x * fmaf(square, fmaf(square, 0.128771135f, -0.333246074f), 1.0f);
  return cutlass_fused_if_less(fabsf(x), 0.25f, near, copysignf(fmaf(-2.0f, part, 1.0f), x));
})",

    // erfc(x) from 0 on: the power of 2 of a polynomial, which is least squares of the largest
    // error, 2^-15, down to what PyTorch's 1 - erf has left of it: 2^-25. Behind that it falls.
    R"(
__device__ __forceinline__ float cutlass_fused_rest_of_erf_16(float const x) {
  float const inner = fmaf(x, fmaf(x, -0.00221744677f, 0.0259027400f), -0.142193037f);
  return cutlass_fused_approx_exp2(
      fmaf(x, fmaf(x, fmaf(x, inner, -0.923097887f), -1.62676072f), -4.44847816e-5f));
})",

    R"(
__device__ __forceinline__ float cutlass_fused_erf_16(float const x) {
  float const far = __fadd_rn(1.0f, -cutlass_fused_rest_of_erf_16(fabsf(x)));
  float const square = x * x;
  float const near = x * fmaf(square, fmaf(square, 0.103267302f, -0.375239091f), 1.12836676f);
  return cutlass_fused_if_less(fabsf(x), 0.5f, near, copysignf(far, x));
})",

    // erfc(|x|) = t 2^(p(t) - x^2 log2(e)) with t = 1 / (1 + |x| / 2)
    R"(
__device__ __forceinline__ float cutlass_fused_erfc_16(float const x) {
  float const t = cutlass_fused_approx_reciprocal_of_normal(fmaf(fabsf(x), 0.5f, 1.0f));
  float const inner = fmaf(t, fmaf(t, 0.330074428f, -1.02314547f), 0.684548164f);
  float const power = fmaf(t, fmaf(t, fmaf(t, inner, 0.367084390f), 1.46868298f), -1.82723350f);
  float const of_size =
      __fmul_rn(t, cutlass_fused_approx_exp2(fmaf(x * x, -1.44269504f, power)));
  return cutlass_fused_if_less(x, 0.0f, __fadd_rn(2.0f, -of_size), of_size);
})",

    // x times the distribution of x, which is q = erfc(|x| / sqrt(2)) / 2 below 0 and 1 - q above.
    // The first factor is 1 above 0, else 0. The polynomial is that of rest_of_erf.
    R"(
__device__ __forceinline__ float cutlass_fused_gelu_16(float const x) {
  float const size = fabsf(x);
  float const inner = fmaf(size, fmaf(size, -3.91992912e-4f, 0.00647568500f), -0.0502728305f);
  float const rest = cutlass_fused_approx_exp2(
      fmaf(size, fmaf(size, fmaf(size, inner, -0.461548943f), -1.15029354f), -1.00004448f));
  return __fmul_rn(x, fabsf(__fadd_rn(__saturatef(x * 1.70141183e38f), -rest)));
})",

    // x / (1 + exp(-2 u)) with u = sqrt(2 / pi) * (x + 0.044715 * x^3)
    R"(
__device__ __forceinline__ float cutlass_fused_gelu_tanh_16(float const x) {
  float const power =
      cutlass_fused_approx_exp2(x * fmaf(x * x, -0.102943240f, -2.30220820f));
  return __fmul_rn(x, cutlass_fused_approx_reciprocal_of_normal(__fadd_rn(1.0f, power)));
})",

    // x * tanh(log(1 + e)) = x * n / (n + 2) with e = exp(x), n = e * (e + 2). Above 20 the second
    // factor is 1. The power is 2^8 times too large, as that of sigmoid is for small results.
    R"(
__device__ __forceinline__ float cutlass_fused_mish_16(float const x) {
  float const power =
      0.00390625f * cutlass_fused_approx_exp2(fmaf(fminf(x, 20.0f), 1.44269504f, 8.0f));
  float const n = power * __fadd_rn(power, 2.0f);
  return __fmul_rn(x, n * cutlass_fused_approx_reciprocal_of_normal(__fadd_rn(n, 2.0f)));
})",

    R"(
__device__ __forceinline__ float cutlass_fused_log_sigmoid_16(float const x) {
  return __fadd_rn(fminf(0.0f, x), -cutlass_fused_log1p_16(cutlass_fused_exp_16(-fabsf(x))));
})",

    R"(
__device__ __forceinline__ float cutlass_fused_elu_16(float const x, float const alpha,
                                                      float const scale,
                                                      float const input_scale) {
  float const below = __fmul_rn(cutlass_fused_expm1_16(x * input_scale), alpha * scale);
  return cutlass_fused_if_less(0.0f, x, __fmul_rn(x, scale), below);
})",

    R"(
__device__ __forceinline__ float cutlass_fused_softplus_16(float const x, float const beta,
                                                           float const threshold) {
  float const below =
      __fmul_rn(cutlass_fused_log1p_16(cutlass_fused_exp_16(x * beta)), 1.0f / beta);
  return cutlass_fused_if_less(threshold, x * beta, x, below);
})",

    // By a number that is not whole: NaN below 0, but not of -infinity.
    R"(
__device__ __forceinline__ float cutlass_fused_pow_16(float const x, float const exponent) {
  float const power = cutlass_fused_approx_exp2(exponent * cutlass_fused_approx_log2(fabsf(x)));
  return x < 0.0f && x >= -3.40282347e38f ? __int_as_float(0x7fc00000) : power;
})",
};

}  // namespace cutlass_fused::program
