// Ops on programs, as gradients in C++ call them.
#pragma once

#include <string>
#include <vector>

#include "switch/derivative.hpp"

namespace cutlass_fused {

// Its outputs, of acc and its operands.
variable_list run_program(Program const& program, Tensor const& acc, variable_list const& operands,
                          bool asynchronous);

// By PyTorch's ops, for which it has all rules.
variable_list compose(Program const& program, Tensor const& acc, variable_list const& operands);

// The gradients of acc and of the operands that are needed, of a function that no program
// differentiates twice, by PyTorch's ops.
variable_list differentiate_by_pytorch(std::string const& function, Tensor const& acc,
                                       variable_list const& operands, Tensor const& grad,
                                       std::vector<bool> const& needed);

// Whether all that a program does is to copy acc, as the gradient of a sum does.
bool is_copy(Program const& program, Tensor const& acc);

// The sum that has this shape. `grad` may be a sum over the rows already.
Tensor sum_to(Tensor const& grad, at::IntArrayRef shape, at::ScalarType dtype);

// What sum_to takes.
struct Summand {
  Tensor grad;
  at::IntArrayRef shape;
  at::ScalarType dtype;
};

// sum_to of each whose `grad` is defined: those over the rows of matrices by one kernel, where
// there is one, or can be: in a graph that is captured nothing is linked. `composed`:
// differentiably.
variable_list sum_all(std::vector<Summand> const& summands, bool composed, bool asynchronous);

// Each vector in its dtype, and behind them zeros like `like`, if these have a dtype: by one
// kernel, where there is one. An undefined vector stays so.
variable_list convert_all(variable_list vectors, std::vector<at::ScalarType> const& dtypes,
                          std::optional<at::ScalarType> zeros, Tensor const& like);

}  // namespace cutlass_fused
