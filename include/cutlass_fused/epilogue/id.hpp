// The name of an epilogue, as kernels are looked up by it: those that were compiled and those that
// are linked later.
#pragma once

#include <cstdint>

namespace cutlass_fused {

struct EpilogueId {
  char const* name;  // lives for ever
  uint64_t hash;

  constexpr EpilogueId(char const* name) : name(name), hash(0xcbf29ce484222325u) {
    for (char const* c = name; *c != '\0'; ++c) {
      hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001b3u;  // FNV-1a
    }
  }
  constexpr bool operator==(EpilogueId const& other) const { return hash == other.hash; }
};

}  // namespace cutlass_fused
