// The parts of a weight that a step of training multiplies by twice.
#pragma once

#include <string>

#include "switch/gradients.hpp"

namespace cutlass_fused {

// What split_weight makes of the weight, where the product with x and that of the gradient of x
// read the same parts; else an undefined tensor. It is made here, and lives as long as the graph of
// the step does: nothing else can come to read it when the weight is another one. `batch_norm`: the
// product stands in front of one in training.
Tensor make_shared_split(Tensor const& x, Tensor const& weight, std::string const& precision,
                         bool batch_norm);

}  // namespace cutlass_fused
