// An op that runs a program as apply_program does where it cannot be linked.
#include <torch/csrc/stable/library.h>

#include "launch/programs/by_pytorch.cpp"

namespace {

using cutlass_fused::Tensor;

std::vector<Tensor> run(Tensor acc, std::vector<Tensor> operands, std::string program,
                        std::optional<std::string> out) {
  return cutlass_fused::run_by_pytorch("apply_program", acc, operands, program, out,
                                       "the compiler's log");
}

}  // namespace

STABLE_TORCH_LIBRARY(cutlass_fused_by_pytorch, m) {
  m.def("run(Tensor acc, Tensor[] operands, str program, str? out=None) -> Tensor[]");
}
STABLE_TORCH_LIBRARY_IMPL(cutlass_fused_by_pytorch, CPU, m) { m.impl("run", TORCH_BOX(&run)); }
