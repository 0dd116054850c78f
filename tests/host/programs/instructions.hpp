// The instructions of program/prelude_16.hpp for a host compiler, with errors as large as the PTX
// ISA lets them be.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// 0: none. 1 and -1: all results are too large, or too small. 2: one or the other.
inline int instruction_errors = 0;

inline double pick_error(float x) {
  if (instruction_errors != 2) return instruction_errors;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return (bits * 2654435761u >> 31) != 0 ? 1 : -1;
}

// y, but for so large a part of it.
inline float with_error(double y, float x, double relative) {
  return float(y * (1 + pick_error(x) * relative));
}
inline float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// 2 ulp and 2^-22.
inline float cutlass_fused_approx_exp2(float x) {
  x = flush(x);
  return x == 0 ? 1.0f : flush(with_error(std::exp2(double(x)), x, 0x1p-21));
}

// 2^-22 from 1/2 to 2, else 2 ulp.
inline float cutlass_fused_approx_log2(float x) {
  double const y = std::log2(double(x));
  if (x >= 0.5f && x <= 2.0f) return float(y + pick_error(x) * 0x1p-22);
  return with_error(y, x, 0x1p-22);
}

inline float cutlass_fused_approx_sqrt(float x) {
  return with_error(std::sqrt(double(x)), x, 0x1p-23);
}
inline float cutlass_fused_approx_reciprocal(float x) {
  return with_error(1 / double(x), x, 0x1p-23);
}
inline float cutlass_fused_approx_reciprocal_of_normal(float x) {
  return flush(cutlass_fused_approx_reciprocal(flush(x)));
}
inline float cutlass_fused_approx_quotient(float x, float y) {
  return with_error(double(x) / double(y), x, 0x1p-22);
}

inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

inline float cutlass_fused_if_less(float x, float y, float is_less, float is_not) {
  return x < y ? is_less : is_not;
}

// On a GPU +0 is above -0.
inline float cutlass_fused_maximum_or_nan(float x, float y) {
  if (x == 0 && y == 0) return std::signbit(x) ? y : x;
  return x != x || y != y ? NAN : std::fmax(x, y);
}
inline float cutlass_fused_minimum_or_nan(float x, float y) {
  if (x == 0 && y == 0) return std::signbit(x) ? x : y;
  return x != x || y != y ? NAN : std::fmin(x, y);
}
