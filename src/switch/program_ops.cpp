#include "switch/program_ops.hpp"

#include <ATen/core/List.h>

#include <optional>

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
    bool const is_wider = dtype == at::kFloat && sum.scalar_type() != at::kDouble;
    sum = is_wider ? sum.sum(at::IntArrayRef{0}, false, dtype) : sum.sum(at::IntArrayRef{0});
  } else if (shape != sum.sizes()) {
    sum = sum.sum_to_size(shape);
  }
  return sum.to(dtype);
}

namespace {

// Whether a program adds up the rows of what is to be added up. What stands for others, as while a
// backward pass is compiled, is PyTorch's.
bool has_kernel(Summand const& summand) {
  auto const is_served = [](at::ScalarType type) {
    return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  };
  Tensor const& grad = summand.grad;
  return grad.is_cuda() && is_served(grad.scalar_type()) && is_served(summand.dtype) &&
         grad.dim() > 1 && summand.shape.equals(grad.sizes().slice(grad.dim() - 1)) &&
         grad.numel() > 0 && grad.is_contiguous() && !grad.key_set().has(c10::DispatchKey::Python);
}

bool are_equal(Summand const& one, Summand const& other) {
  return one.grad.is_same(other.grad) && one.dtype == other.dtype;
}

// Which adds up so many tiles.
Program copy_tiles(std::vector<Summand> const& tiles) {
  std::string text = "program 1\noperands " + std::to_string(tiles.size() - 1) + "\nreturn acc";
  std::string out = std::string("sum:") + name_of(tiles[0].dtype);
  for (size_t i = 1; i < tiles.size(); ++i) {
    text += " p" + std::to_string(i - 1);
    out += std::string(",sum:") + name_of(tiles[i].dtype);
  }
  return {text + "\n", out, static_cast<int64_t>(tiles.size()), {}, {}};
}

// Nothing: the kernel cannot be made now, as in a graph that is captured.
variable_list add_rows(std::vector<Summand> const& tiles, bool asynchronous) {
  if (tiles.empty()) return {};
  variable_list operands;
  for (size_t i = 1; i < tiles.size(); ++i) operands.push_back(to_rows(tiles[i].grad));
  try {
    return run_program(copy_tiles(tiles), to_rows(tiles[0].grad), operands, asynchronous);
  } catch (c10::Error const&) {
    return {};
  }
}

}  // namespace

variable_list sum_all(std::vector<Summand> const& summands, bool composed, bool asynchronous) {
  constexpr size_t kMostOutputs = 8;  // of a program
  std::vector<Summand> tiles;
  std::vector<std::optional<size_t>> places(summands.size());
  for (size_t i = 0; i < summands.size() && !composed; ++i) {
    Summand const& each = summands[i];
    if (!each.grad.defined() || !has_kernel(each)) continue;
    size_t place = 0;
    while (place < tiles.size() && !are_equal(tiles[place], each)) ++place;
    bool const is_like = tiles.empty() || each.grad.sizes().equals(tiles[0].grad.sizes());
    if (place == kMostOutputs || !is_like) continue;
    if (place == tiles.size()) tiles.push_back(each);
    places[i] = place;
  }
  variable_list const sums = add_rows(tiles, asynchronous);
  variable_list found(summands.size());
  for (size_t i = 0; i < summands.size(); ++i) {
    Summand const& each = summands[i];
    if (places[i] && !sums.empty()) {
      found[i] = sums[*places[i]];
    } else if (each.grad.defined()) {
      found[i] = sum_to(each.grad, each.shape, each.dtype);
    }
  }
  return found;
}

}  // namespace cutlass_fused
