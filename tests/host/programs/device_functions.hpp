// What printed programs take for granted on a GPU, for a host compiler.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "instructions.hpp"

#define __device__
#define __forceinline__ inline

inline float __int_as_float(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}
inline int32_t __float_as_int(float number) {
  int32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

// Compiled without contraction.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
// Of a GPU's, which errs by two units in the last place at most.
inline float __fdividef(float x, float y) { return x / y; }

// On a GPU +0 is above -0; a host's may return either.
inline float device_fmaxf(float x, float y) {
  if (x == 0 && y == 0) return std::signbit(x) ? y : x;
  return std::fmax(x, y);
}
inline float device_fminf(float x, float y) {
  if (x == 0 && y == 0) return std::signbit(x) ? x : y;
  return std::fmin(x, y);
}
#define fmaxf device_fmaxf
#define fminf device_fminf

// Some hosts have one of this name.
inline float device_rsqrtf(float x) { return float(1 / std::sqrt(double(x))); }
#define rsqrtf device_rsqrtf
