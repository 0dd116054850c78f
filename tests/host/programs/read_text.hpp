// The text of a program from a line of hexadecimal digits, since it may hold any byte.
#pragma once

#include <string>

#include "cutlass_fused/program/numbers.hpp"

inline std::string read_text(std::string const& line) {
  using cutlass_fused::program::hex_value;
  std::string text;
  for (size_t i = 0; i + 1 < line.size(); i += 2) {
    text += static_cast<char>(hex_value(line[i]) << 4 | hex_value(line[i + 1]));
  }
  return text;
}
