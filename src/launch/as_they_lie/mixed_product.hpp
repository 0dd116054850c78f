// Products of x of 16 bits with a weight of fp32.
#pragma once

#include "launch/product.hpp"

namespace cutlass_fused {

// y = epilogue(x @ weight.T), as run_linear_into computes it of x in fp32: no digit of x is lost.
void run_mixed_linear_into(char const* op, Matrices matrices, EpilogueCall const& epilogue,
                           Precision precision, Tensor const& y, DataType y_type, Tail::Kind kind,
                           Device const& device);

}  // namespace cutlass_fused
