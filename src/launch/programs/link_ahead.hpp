// Programs are linked for GPUs that are not there, into the cache of kernels: a machine with these
// files needs no NVRTC.
#pragma once

#include <string>
#include <vector>

#include "launch/programs/operands.hpp"

namespace cutlass_fused {

// What became of a kernel: it is linked, by this process or before, or cannot be, or not be
// written.
struct Linked {
  std::string name;
  bool is_new = false;
  std::string refusal, write_error;  // empty: neither
};

// A program behind a product of contiguous matrices of this type; M, N and K, or 0 for all tiles.
struct ProductToLink {
  DataType type;
  Precision precision;
  int compute_capability;
  int64_t m, n, k;
};

// The kernels that run the program within the product: none where it runs behind. Of sizes those of
// the tiles that serve them on common GPUs, where such are known.
std::vector<Linked> link_within(ProductToLink const& product, program::Program const& program,
                                std::vector<program::Element> const& operands,
                                std::vector<program::Type> const& outputs);

// The kernels that run it on elements in memory, acc being the first of `inputs`: that for (M, N),
// else for every N.
std::vector<Linked> link_pointwise(int compute_capability, int64_t m, int64_t n,
                                   program::Program const& program,
                                   std::vector<program::Element> const& inputs,
                                   Results const& results);

}  // namespace cutlass_fused
