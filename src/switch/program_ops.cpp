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

// Whether a program takes it, and gives this dtype. What stands for others, as while a backward
// pass is compiled, is PyTorch's, and so is what carries a derivative in forward mode.
bool is_read(Tensor const& tensor, at::ScalarType dtype) {
  return !tensor.key_set().has(c10::DispatchKey::Python) && tensor.is_cuda() &&
         has_kernels(tensor.scalar_type()) && has_kernels(dtype) && tensor.numel() > 0 &&
         tensor.is_contiguous() && !has_tangent(tensor);
}

// Whether a program adds up its rows.
bool has_kernel(Summand const& summand) {
  Tensor const& grad = summand.grad;
  return is_read(grad, summand.dtype) && grad.dim() > 1 &&
         summand.shape.equals(grad.sizes().slice(grad.dim() - 1));
}

bool are_equal(Summand const& one, Summand const& other) {
  return one.grad.is_same(other.grad) && one.dtype == other.dtype;
}

// A program that copies: each into an output of its dtype, behind `prefix`, and zeros behind all,
// where they have one. Nothing: the kernel cannot be made now, as in a graph that is captured.
variable_list copy_all(variable_list tensors, std::vector<at::ScalarType> const& dtypes,
                       std::string const& prefix, std::optional<at::ScalarType> zeros,
                       bool asynchronous) {
  Tensor const first = tensors.front();
  tensors.erase(tensors.begin());
  std::string text = "program 1\noperands " + std::to_string(tensors.size()) + "\nreturn acc";
  for (size_t i = 0; i < tensors.size(); ++i) text += " p" + std::to_string(i);
  if (zeros) text += " 0x0.0p+0";
  std::string out;
  for (at::ScalarType dtype : dtypes) out += (out.empty() ? "" : ",") + prefix + name_of(dtype);
  if (zeros) out += std::string(",") + name_of(*zeros);
  Program const program{
      text + "\n", out, static_cast<int64_t>(dtypes.size() + zeros.has_value()), {}, {}};
  try {
    return run_program(program, first, tensors, asynchronous);
  } catch (c10::OutOfMemoryError const&) {
    throw;
  } catch (std::exception const&) {  // the stable ABI throws its own
    return {};
  }
}

variable_list add_rows(std::vector<Summand> const& tiles, bool asynchronous) {
  variable_list tensors;
  std::vector<at::ScalarType> dtypes;
  for (Summand const& tile : tiles) {
    tensors.push_back(to_rows(tile.grad));
    dtypes.push_back(tile.dtype);
  }
  if (tensors.empty()) return {};
  return copy_all(std::move(tensors), dtypes, "sum:", std::nullopt, asynchronous);
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

variable_list convert_all(variable_list vectors, std::vector<at::ScalarType> const& dtypes,
                          std::optional<at::ScalarType> zeros, Tensor const& like) {
  variable_list given;
  std::vector<at::ScalarType> wanted;
  std::vector<size_t> places;
  bool is_served_at_once = !c10::GradMode::is_enabled() && !is_transformed();
  for (size_t i = 0; i < vectors.size(); ++i) {
    Tensor const& each = vectors[i];
    if (!each.defined() || each.scalar_type() == dtypes[i]) continue;
    is_served_at_once &= is_read(each, dtypes[i]) && each.numel() == like.numel();
    given.push_back(each.dim() == 1 ? each : each.reshape({-1}));
    wanted.push_back(dtypes[i]);
    places.push_back(i);
  }
  if (zeros) is_served_at_once &= has_kernels(*zeros);
  variable_list found;
  if (!given.empty() && given.size() + zeros.has_value() > 1 && is_served_at_once) {
    found = copy_all(std::move(given), wanted, "", zeros, /*asynchronous=*/true);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    Tensor& each = vectors[places[i]];
    each = found.empty() ? each.to(wanted[i]) : found[i].view(each.sizes());
  }
  if (zeros) {
    vectors.push_back(found.empty() ? at::zeros_like(like, like.options().dtype(*zeros))
                                    : found.back());
  }
  return vectors;
}

}  // namespace cutlass_fused
