// A program on elements in memory, by a kernel that is compiled for it on first use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/programs/operands.hpp"
#include "checks/device.hpp"

namespace cutlass_fused {

// Each of `outputs`, contiguous (M, N), gets an output of the program: of its inputs, acc first.
// Throws where the kernel cannot be compiled, or would have to be while a graph is captured.
void run_pointwise(char const* op, std::string const& text, program::Program const& program,
                   std::vector<ProgramInput> inputs, std::vector<program::Type> const& types,
                   std::vector<Tensor> const& outputs, int64_t rows, int64_t columns,
                   Device const& device);

}  // namespace cutlass_fused
