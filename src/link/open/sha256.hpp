// SHA-256 (FIPS 180-4): what tells a file that was damaged, and one text from another.
#pragma once

#include <string>
#include <string_view>

namespace cutlass_fused::link {

// 32 bytes.
std::string sha256(std::string_view text);

}  // namespace cutlass_fused::link
