// apply_program: y, ... = program(acc, operands)
#include "launch/allocate.hpp"
#include "launch/programs/pointwise.hpp"
#include "checks/status.hpp"
#include "op_namespace.hpp"

#include <torch/csrc/stable/library.h>

namespace cutlass_fused {
namespace {

std::vector<Tensor> apply_program(Tensor acc, std::vector<Tensor> operands, std::string program,
                                  std::optional<std::string> out, bool asynchronous) {
  constexpr char kOp[] = "apply_program";
  Matrices const rows = check_rows(kOp, acc);
  auto const read = read_program(kOp, program, operands.size());
  check_columns(kOp, *read, rows.n);
  std::vector<ProgramInput> inputs = {{{to_type(rows.type), program::Kind::kTile}, acc}};
  for (size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back({check_operand(kOp, i, operands[i], rows.y_shape, acc), operands[i]});
  }
  Results const results = check_results(kOp, out, to_type(rows.type), *read);

  DeviceScope const scope(kOp, acc);
  std::vector<Tensor> outputs;
  bool const is_empty = rows.m == 0 || rows.n == 0;
  for (size_t i = 0; i < results.types.size(); ++i) {
    std::vector<int64_t> const shape =
        results.is_sum(i) ? std::vector<int64_t>{rows.n} : shape_of_output(*read, i, rows.y_shape);
    outputs.push_back(allocate(acc, shape, to_scalar_type(results.types[i])));
    if (is_empty && results.is_sum(i)) torch::stable::zero_(outputs.back());
  }
  if (is_empty) return outputs;
  return run_pointwise(kOp, program, *read, inputs, results, outputs, rows.m, rows.n,
                       scope.device(), asynchronous ? LinkWhen::kLater : LinkWhen::kNow);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("apply_program", TORCH_BOX(&apply_program));
}

}  // namespace
}  // namespace cutlass_fused
