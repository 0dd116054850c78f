#include "switch/program_ops.hpp"

#include <ATen/core/List.h>

#include "op_namespace.hpp"

namespace cutlass_fused {

variable_list run_program(Program const& program, Tensor const& acc, variable_list const& operands,
                          bool asynchronous) {
  static NamedOp const op(OP_NAME("apply_program"));
  torch::jit::Stack stack = op.arguments();
  stack[0] = acc;
  stack[1] = operands;
  stack[2] = program.text;
  stack[3] = program.out;
  stack[4] = asynchronous;
  return op.run(std::move(stack)).front().toTensorVector();
}

variable_list compose(Program const& program, Tensor const& acc, variable_list const& operands) {
  static auto const op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(OP_NAME("transformed_program"), "")
          .typed<std::vector<Tensor>(Tensor const&, at::TensorList, std::string, std::string)>();
  return op.call(acc, operands, program.text.toStringRef(), program.out.toStringRef());
}

variable_list differentiate_by_pytorch(std::string const& function, Tensor const& acc,
                                       variable_list const& operands, Tensor const& grad,
                                       std::vector<bool> const& needed) {
  static auto const op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(OP_NAME("gradient_by_pytorch"), "")
          .typed<std::tuple<std::vector<Tensor>, c10::List<bool>>(
              Tensor const&, at::TensorList, Tensor const&, std::string, c10::List<bool>)>();
  c10::List<bool> asked;
  for (bool each : needed) asked.push_back(each);
  auto const [given, are_given] = op.call(acc, operands, grad, function, asked);
  variable_list found(needed.size());
  for (size_t i = 0, next = 0; i < needed.size(); ++i) {
    if (are_given.get(i)) found[i] = given[next++];
  }
  return found;
}

bool is_copy(Program const& program, Tensor const& acc) {
  return program.text.toStringRef() == "program 1\noperands 0\nreturn acc\n" &&
         program.out.toStringRef() == name_of(acc.scalar_type());
}

Tensor sum_to(Tensor const& grad, at::IntArrayRef shape, at::ScalarType dtype) {
  Tensor sum = grad;
  if (grad.dim() < static_cast<int64_t>(shape.size())) {
    std::vector<int64_t> row(shape.size(), 1);
    row.back() = -1;
    sum = grad.reshape(row);
  }
  if (sum.dim() == 2 && shape == sum.sizes().slice(1)) {
    sum = sum.sum(at::IntArrayRef{0});
  } else if (shape != sum.sizes()) {
    sum = sum.sum_to_size(shape);
  }
  return sum.to(dtype);
}

}  // namespace cutlass_fused
