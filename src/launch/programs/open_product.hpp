// A product whose epilogue is a program, by a kernel that is made of both on first use.
#pragma once

#include <string>
#include <vector>

#include "launch/product.hpp"
#include "launch/programs/linking.hpp"
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
  LinkWhen when = LinkWhen::kNow;
};

enum class OpenOutcome {
  kDone,
  kNoKernel,  // nothing has been written: no kernel does it
  kPending    // ... or it is being linked
};

// outputs = program(x @ weight.T, operands), not empty. Where the kernel of the plan's tile is not
// there and may not be linked, or failed to, that of another tile serves that is linked. Throws
// where there is none while a graph is captured.
OpenOutcome run_open_product(ProgramCall const& call, Matrices matrices, Precision precision,
                             Device const& device);

}  // namespace cutlass_fused
