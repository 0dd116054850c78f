// Numbers as Python's float.hex() writes them, and as CUDA C++ reads them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace cutlass_fused::program {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// -1: no digit of a hexadecimal number in lower case.
inline int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "-3", "+12": a sign and one to four digits, which is all that an exponent of a double needs.
inline std::optional<int> parse_exponent(std::string_view text) {
  if (text.size() < 2 || text.size() > 5 || (text[0] != '+' && text[0] != '-')) return {};
  int exponent = 0;
  for (char c : text.substr(1)) {
    if (!is_digit(c)) return {};
    exponent = 10 * exponent + (c - '0');
  }
  return text[0] == '-' ? -exponent : exponent;
}

// "0x1.8p+0": one digit before the point, one to thirteen behind it, as many as a double has.
inline std::optional<double> parse_magnitude(std::string_view text) {
  constexpr size_t kPoint = 3, kMostDigits = 13;
  if (text == "inf") return std::numeric_limits<double>::infinity();
  size_t const end = text.find('p');
  if (end == std::string_view::npos || end < kPoint + 2 || end > kPoint + 1 + kMostDigits)
    return {};
  if (text.substr(0, 2) != "0x" || text[kPoint] != '.') return {};
  if (text[2] != '0' && text[2] != '1') return {};
  uint64_t digits = text[2] - '0';
  for (char c : text.substr(kPoint + 1, end - kPoint - 1)) {
    if (hex_value(c) < 0) return {};
    digits = digits << 4 | static_cast<uint64_t>(hex_value(c));
  }
  auto const exponent = parse_exponent(text.substr(end + 1));
  if (!exponent) return {};
  int const behind_point = 4 * static_cast<int>(end - kPoint - 1);
  return std::ldexp(static_cast<double>(digits), *exponent - behind_point);
}

// Nothing: the text is no number.
inline std::optional<double> parse_number(std::string_view text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  bool const is_negative = !text.empty() && text[0] == '-';
  auto const magnitude = parse_magnitude(text.substr(is_negative));
  if (!magnitude) return {};
  return is_negative ? -*magnitude : *magnitude;
}

// The nearest float, which may be an infinity, by its bits: there are no literals for infinities
// and NaN.
inline std::string print_number(double number) {
  float const rounded = static_cast<float>(number);
  uint32_t bits = 0x7fc00000;
  if (!std::isnan(rounded)) std::memcpy(&bits, &rounded, sizeof bits);
  char text[32];
  std::snprintf(text, sizeof text, "__int_as_float(0x%08x)", static_cast<unsigned>(bits));
  return text;
}

}  // namespace cutlass_fused::program
