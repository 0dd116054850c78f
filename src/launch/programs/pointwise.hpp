// A program on elements in memory, by a kernel that is compiled for it on first use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cutlass_fused/program/pointwise_plan.hpp"
#include "launch/programs/linking.hpp"
#include "launch/programs/operands.hpp"
#include "checks/device.hpp"

namespace cutlass_fused {

// program(inputs), acc first: in `outputs`, which are (M, N / width), or (N,) where `results` has a
// sum, and contiguous, or as new
// tensors by PyTorch's ops: where no kernel can be compiled, which stderr says once, and where it
// is not yet and the call may not wait. Throws where one would have to be while a graph is
// captured.
std::vector<Tensor> run_pointwise(char const* op, std::string const& text,
                                  program::Program const& program,
                                  std::vector<ProgramInput> const& inputs, Results const& results,
                                  std::vector<Tensor> const& outputs, int64_t rows, int64_t columns,
                                  Device const& device, LinkWhen when = LinkWhen::kNow);

// How a kernel goes through (rows, columns): in pieces of so many elements.
struct Walk {
  int piece;
  int64_t rows, columns;
};
// `is_flat`: the elements of each row follow those of the row before. `sums`: as of choose_piece.
Walk choose_walk(std::vector<program::Memory> memories, bool is_flat, int64_t rows, int64_t columns,
                 int sums = 0);

}  // namespace cutlass_fused
