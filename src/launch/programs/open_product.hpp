// A product whose epilogue is a program, by a kernel that is made of both on first use.
#pragma once

#include <string>
#include <vector>

#include "launch/product.hpp"
#include "launch/programs/operands.hpp"

namespace cutlass_fused {

struct ProgramCall {
  char const* op;
  std::string const& text;
  program::Program const& program;
  std::vector<ProgramInput> const& operands;
  // Contiguous (M, N), and their types: y's first.
  std::vector<Tensor> const& outputs;
  std::vector<program::Type> const& types;
};

// outputs = program(x @ weight.T, operands), not empty. False: no kernel does it, and nothing has
// been written. Throws where the kernel would have to be made while a graph is captured.
bool run_open_product(ProgramCall const& call, Matrices matrices, Precision precision,
                      Device const& device);

}  // namespace cutlass_fused
