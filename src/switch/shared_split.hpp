// The parts of a weight that a step of training multiplies by twice.
#pragma once

#include <string>

#include "switch/gradients.hpp"

namespace cutlass_fused {

// What split_weight makes of the weight, where the product with x and that of the gradient of x
// read the same parts; else an undefined tensor. It is made here, and lives as long as the graph of
// the step does: nothing else can come to read it when the weight is another one. `batch_norm`: the
// product stands in front of one in training.
//
// `kept`: what the call before left for this weight and precision, or an empty tensor, which takes
// what this one leaves. Its parts are compared with the weight on the GPU, and made anew where that
// has changed. A graph of an earlier step reads them then, as it reads the weight of now itself.
Tensor make_shared_split(Tensor const& x, Tensor const& weight, std::string const& precision,
                         bool batch_norm, OptionalTensor const& kept);

}  // namespace cutlass_fused
