// Unpacks what zlib packed (RFC 1950 and 1951), so that the library needs no zlib to be loaded.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cutlass_fused::link {

// Nothing: the data are damaged, or not `size` bytes unpacked.
std::optional<std::string> inflate(std::string_view packed, size_t size);

}  // namespace cutlass_fused::link
