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

namespace {

constexpr char kCopy[] = "program 1\noperands 0\nreturn acc\n";

// Over the rows of a matrix, by a program that adds up what it copies: PyTorch's kernel for it
// takes as long as that of the product in front of it.
Tensor add_rows(Tensor const& matrix, at::ScalarType dtype, bool asynchronous) {
  static c10::IValue const copy(kCopy);
  Program const program{copy, std::string("sum:") + name_of(dtype), 1, {}, {true}};
  return run_program(program, matrix, {}, asynchronous).front();
}

bool has_kernel(Tensor const& matrix, at::ScalarType dtype) {
  return matrix.is_cuda() && matrix.scalar_type() != at::kDouble && dtype != at::kDouble &&
         matrix.numel() > 0;
}

}  // namespace

bool is_copy(Program const& program, Tensor const& acc) {
  return program.text.toStringRef() == kCopy &&
         program.out.toStringRef() == name_of(acc.scalar_type());
}

Tensor sum_to(Tensor const& grad, at::IntArrayRef shape, at::ScalarType dtype, bool composed,
              bool asynchronous) {
  Tensor sum = grad;
  if (grad.dim() < static_cast<int64_t>(shape.size())) {
    std::vector<int64_t> row(shape.size(), 1);
    row.back() = -1;
    sum = grad.reshape(row);
  }
  if (sum.dim() >= 2 && shape == sum.sizes().slice(sum.dim() - 1)) {
    if (!composed && has_kernel(sum, dtype)) return add_rows(to_rows(sum), dtype, asynchronous);
    sum = sum.dim() == 2 ? sum.sum(at::IntArrayRef{0}) : sum.sum_to_size(shape);
  } else if (shape != sum.sizes()) {
    sum = sum.sum_to_size(shape);
  }
  return sum.to(dtype);
}

}  // namespace cutlass_fused
