// A program by PyTorch's own ops, a kernel for each of its words: what is left where no kernel can
// be linked for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/checks.hpp"

namespace cutlass_fused {

// apply_program, by the op run_program, which the Python package has. `error`: why the program was
// not linked. Throws with it where there is no such package in the process.
std::vector<Tensor> run_by_pytorch(char const* op, Tensor const& acc,
                                   std::vector<Tensor> const& operands, std::string const& program,
                                   std::optional<std::string> const& out, std::string const& error);

}  // namespace cutlass_fused
