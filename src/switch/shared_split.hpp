// The parts of a weight that a step of training multiplies by twice.
#pragma once

#include <string>

#include "switch/gradients.hpp"

namespace cutlass_fused {

// Parts that were kept of the weight (cutlass_fused/weights/trained.py), with their checksum.
struct KeptParts {
  OptionalTensor split, checksum;
};

// What split_weight makes of the weight, where the product with x and that of the gradient of x
// read the same parts; else an undefined tensor. Parts that were kept are looked at on the GPU, and
// made again there if the weight is another one. Others are made here, and live as long as the
// graph of the step does: nothing else can come to read them when the weight is another one.
// `batch_norm`: the product stands in front of one in training. Not to be called within a Function:
// it asks whether a gradient of x is recorded.
Tensor make_shared_split(Tensor const& x, Tensor const& weight, std::string const& precision,
                         bool batch_norm, KeptParts const& kept);

}  // namespace cutlass_fused
