// The conversions of printed kernels, for a host compiler.
#pragma once

constexpr char kHostConversions[] = R"(
struct Half { _Float16 value; };
struct BFloat { unsigned short bits; };
inline float to_float(float x) { return x; }
inline float to_float(Half x) { return float(x.value); }
inline float to_float(BFloat x) { return __int_as_float(unsigned(x.bits) << 16); }
inline void round_to(float& y, float x) { y = x; }
inline void round_to(Half& y, float x) { y.value = _Float16(x); }
inline void round_to(BFloat& y, float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  y.bits = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float larger_of(float x, float y) { return x != x ? x : y != y ? y : fmaxf(x, y); }
inline float smaller_of(float x, float y) { return x != x ? x : y != y ? y : fminf(x, y); }
)";
