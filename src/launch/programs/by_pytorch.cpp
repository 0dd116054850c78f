#include "launch/programs/by_pytorch.hpp"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

#include "op_namespace.hpp"

namespace cutlass_fused {

std::vector<Tensor> run_by_pytorch(char const* op, Tensor const& acc,
                                   std::vector<Tensor> const& operands, std::string const& program,
                                   std::optional<std::string> const& out,
                                   std::string const& error) {
  using torch::stable::detail::from, torch::stable::detail::to;
  StableIValue stack[] = {from(acc), from(operands), from(program), from(out)};
  bool const has_run = torch_call_dispatcher(OP_NAME("run_program"), "", stack,
                                             TORCH_ABI_VERSION) == AOTI_TORCH_SUCCESS;
  STD_TORCH_CHECK(has_run, op,
                  ": the program must be linked by NVRTC, or ahead of time by python -m "
                  "cutlass_fused.build_epilogues, or run by the Python package cutlass_fused, got "
                  "neither: ",
                  error);
  return to<std::vector<Tensor>>(stack[0]);
}

}  // namespace cutlass_fused
