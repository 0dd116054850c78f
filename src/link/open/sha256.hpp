// SHA-256 (FIPS 180-4): what tells a file that was damaged, and one text from another.
#pragma once

#include <string>
#include <string_view>

namespace cutlass_fused::link {

// 32 bytes.
std::string sha256(std::string_view text);

// Its 64 digits as 32 bytes; empty: they are none.
std::string read_sum(std::string_view digits);

}  // namespace cutlass_fused::link
