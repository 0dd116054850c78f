// Whether CUTLASS could make a TMA descriptor. Where it could not, it says so on stderr, returns
// one of zeros, and a launch with it is an illegal instruction.
#pragma once

#include <algorithm>

#include "cute/arch/copy_sm90_desc.hpp"

namespace cutlass_fused {

template <class TmaCopy>
bool is_encoded(TmaCopy const& copy) {
  auto const* const bytes = reinterpret_cast<char const*>(copy.get_tma_descriptor());
  return std::any_of(bytes, bytes + sizeof(cute::TmaDescriptor),
                     [](char byte) { return byte != 0; });
}

}  // namespace cutlass_fused
