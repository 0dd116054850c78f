// linear_epilogue: y, ... = program(x @ weight.T, operands)
#include "launch/allocate.hpp"
#include "launch/product.hpp"
#include "launch/programs/open_product.hpp"
#include "launch/programs/pointwise.hpp"
#include "checks/status.hpp"
#include "op_namespace.hpp"

#include <torch/csrc/stable/library.h>

namespace cutlass_fused {
namespace {

// What a program behind a product reads of it. Functions of rows in 16 bits are bound by memory,
// and get the product rounded to 16 bits, as in eager PyTorch. What stands in for an open kernel,
// whose program sees sums in fp32, sees them too.
DataType choose_product_type(program::Program const& program, Matrices const& matrices,
                             std::vector<program::Type> const& types) {
  if (!program.is_of_rows() || matrices.is_mixed) return DataType::kFloat32;
  for (program::Type const type : types) {
    if (type != to_type(matrices.type)) return DataType::kFloat32;
  }
  return matrices.type;
}

std::vector<Tensor> linear_epilogue(Tensor x, Tensor weight, std::vector<Tensor> operands,
                                    std::string program, std::string precision,
                                    std::optional<std::string> out,
                                    std::optional<Tensor> weight_split, bool asynchronous) {
  constexpr char kOp[] = "linear_epilogue";
  Matrices const matrices = check_mixed_matrices(kOp, x, weight, weight_split);
  Precision const checked = check_precision(kOp, precision);
  auto const read = read_program(kOp, program, operands.size());
  check_columns(kOp, *read, matrices.n);
  std::vector<program::Element> elements;
  for (size_t i = 0; i < operands.size(); ++i) {
    elements.push_back(check_operand(kOp, i, operands[i], matrices.y_shape, x));
  }
  std::vector<program::Type> const types =
      check_outputs(kOp, out, to_type(matrices.type), read->outputs.size());

  DeviceScope const scope(kOp, x);
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < types.size(); ++i) {
    auto const shape = shape_of_output(*read, i, matrices.y_shape);
    outputs.push_back(allocate(x, shape, to_scalar_type(types[i])));
  }
  if (matrices.m == 0 || matrices.n == 0) return outputs;
  std::vector<ProgramInput> inputs;
  for (size_t i = 0; i < operands.size(); ++i) inputs.push_back({elements[i], operands[i]});
  LinkWhen const when = asynchronous ? LinkWhen::kLater : LinkWhen::kNow;
  ProgramCall const call{kOp, program, *read, inputs, outputs, types, when};
  OpenOutcome const outcome = read->is_of_rows()
                                  ? OpenOutcome::kNoKernel
                                  : run_open_product(call, matrices, checked, scope.device());
  if (outcome == OpenOutcome::kDone) return outputs;
  // The product, and the program behind it.
  BareCall const bare;
  DataType const z_type = choose_product_type(*read, matrices, types);
  Tensor const z = run_linear(kOp, matrices, bare.call, checked, z_type);
  inputs.insert(inputs.begin(), {{to_type(z_type), program::Kind::kTile}, z});
  // What stands in for a kernel that is being linked is not linked itself.
  return run_pointwise(kOp, program, *read, inputs, {types}, outputs, matrices.m, matrices.n,
                       scope.device(), outcome == OpenOutcome::kPending ? LinkWhen::kNever : when);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("linear_epilogue", TORCH_BOX(&linear_epilogue));
}

}  // namespace
}  // namespace cutlass_fused
