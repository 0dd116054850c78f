// What ops say as JSON.
#pragma once

#include <string>

namespace cutlass_fused {

inline std::string json_text(std::string const& text) {
  std::string quoted = "\"";
  for (char const c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  return quoted + '"';
}

}  // namespace cutlass_fused
