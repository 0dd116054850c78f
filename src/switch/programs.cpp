// Programs behind a product, and on elements, with gradients in C++: gradients.cpp tells why. What
// a gradient is made of, and when it is none of these, stands in cutlass_fused/programs/ in
// differentiated.py and differentiable.py.
#include <torch/csrc/autograd/forward_grad.h>

#include "op_namespace.hpp"
#include "switch/derivative.hpp"
#include "switch/program_ops.hpp"
#include "switch/shared_split.hpp"

namespace cutlass_fused {
namespace {

// What a Function keeps beside tensors. In `saved_data` it stands as words and numbers: compiled
// autograd asks for the hash of each, which objects have not.
struct Memory {
  std::string program;  // of a product: what read_recorded reads; of elements: its key
  bool is_asynchronous = false;
  std::vector<int64_t> needed;               // of a program on elements
  std::vector<std::vector<int64_t>> shapes;  // of acc, where it is an input, and the operands
  std::vector<at::ScalarType> dtypes;

  void describe(Tensor const& tensor) {
    shapes.push_back(tensor.sizes().vec());
    dtypes.push_back(tensor.scalar_type());
  }
};

constexpr char kProgram[] = "program", kAsynchronous[] = "asynchronous", kNeeded[] = "needed",
               kTensors[] = "tensors";

void keep(AutogradContext* ctx, Memory const& memory) {
  std::vector<int64_t> tensors;  // of each its dtype, its dimensions and their sizes
  for (size_t i = 0; i < memory.shapes.size(); ++i) {
    std::vector<int64_t> const& shape = memory.shapes[i];
    tensors.push_back(static_cast<int64_t>(memory.dtypes[i]));
    tensors.push_back(static_cast<int64_t>(shape.size()));
    tensors.insert(tensors.end(), shape.begin(), shape.end());
  }
  ctx->saved_data[kProgram] = memory.program;
  ctx->saved_data[kAsynchronous] = memory.is_asynchronous;
  ctx->saved_data[kNeeded] = memory.needed;
  ctx->saved_data[kTensors] = tensors;
}

Memory find_memory(AutogradContext* ctx) {
  Memory memory;
  memory.program = ctx->saved_data.at(kProgram).toStringRef();
  memory.is_asynchronous = ctx->saved_data.at(kAsynchronous).toBool();
  memory.needed = ctx->saved_data.at(kNeeded).toIntVector();
  std::vector<int64_t> const tensors = ctx->saved_data.at(kTensors).toIntVector();
  for (auto next = tensors.begin(); next != tensors.end();) {
    memory.dtypes.push_back(static_cast<at::ScalarType>(*next++));
    int64_t const dimensions = *next++;
    memory.shapes.emplace_back(next, next + dimensions);
    next += dimensions;
  }
  return memory;
}

bool are_transformed() {
  return is_transformed() || torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
}

variable_list apply(Program const& program, Tensor const& acc, variable_list const& operands,
                    bool asynchronous);

// `composed`: differentiably.
variable_list run_derivative(Program const& program, bool composed, Tensor const& first,
                             variable_list const& read, bool asynchronous) {
  if (is_copy(program, first)) return {first};
  if (!composed) return run_program(program, first, read, asynchronous);
  if (are_transformed()) return compose(program, first, read);
  return apply(program, first, read, asynchronous);
}

bool is_composed(Tensor const& gradient) { return is_differentiated(gradient) || is_transformed(); }

// The gradient of groups of columns in all of their columns, as a program reads it.
Tensor spread_groups(Tensor const& grad, int64_t width) {
  return grad.repeat_interleave(width, /*dim=*/-1);
}

Tensor const* find_defined(variable_list const& grads, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (grads[i].defined()) return &grads[i];
  }
  return nullptr;
}

// A program on elements: differentiable.py's AppliedProgram.
struct AppliedProgram : public Function<AppliedProgram> {
  static constexpr bool is_traceable = true;
  static constexpr size_t kOthers = 3;  // arguments that are no tensors

  static variable_list forward(AutogradContext* ctx, Tensor const& acc, at::TensorList operands,
                               Program const& program, DerivativeOf const& derivative,
                               bool asynchronous) {
    Memory memory;
    memory.program = program.key;
    memory.is_asynchronous = asynchronous;
    variable_list kept;
    int64_t index = 0;
    auto const take = [&](Tensor const& tensor) {
      memory.describe(tensor);
      memory.needed.push_back(tensor.requires_grad());
      kept.push_back(derivative->has_read(index++) ? tensor : Tensor());
    };
    take(acc);
    for (Tensor const& operand : operands) take(operand);
    ctx->save_for_backward(std::move(kept));
    keep(ctx, memory);
    ctx->set_materialize_grads(false);
    return run_program(program, acc, operands.vec(), asynchronous);
  }

  static variable_list backward(AutogradContext* ctx, variable_list const& grads) {
    Memory const memory = find_memory(ctx);
    Program const program = read_program(memory.program);
    size_t const inputs = memory.shapes.size();
    variable_list found(inputs + kOthers);
    Tensor const* const like = find_defined(grads, grads.size());
    if (like == nullptr) return found;
    c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
    variable_list tensors = ctx->get_saved_variables();
    DerivativeOf const derivative = choose(memory, program, tensors, grads);
    if (derivative->outputs == 0) return found;
    // The results have dtypes of their own, and those that are sums are rows.
    at::IntArrayRef const tile = memory.shapes[0], row = tile.slice(tile.size() - 1);
    std::vector<bool> const& sums = program.sums;
    for (size_t i = 0; i < grads.size(); ++i) {
      tensors.push_back(grads[i].defined() ? grads[i] : like->new_zeros(sums[i] ? row : tile));
    }
    variable_list read;
    for (int64_t index : derivative->reads) read.push_back(tensors[index]);
    Tensor first = tensors[inputs + derivative->first];
    if (sums[derivative->first]) first = first.expand(tile);  // the same in all rows
    bool const composed = is_composed(*like);
    variable_list const outputs =
        run_derivative(*derivative, composed, first, read, memory.is_asynchronous);
    std::vector<Summand> summands;
    for (size_t i = 0; i < inputs; ++i) {
      int64_t const place = derivative->places[i];
      bool const is_wanted = place != Derivative::kNothing && ctx->needs_input_grad(i);
      summands.push_back(
          {is_wanted ? outputs[place] : Tensor(), memory.shapes[i], memory.dtypes[i]});
    }
    variable_list const added = sum_all(summands, composed, memory.is_asynchronous);
    std::copy(added.begin(), added.end(), found.begin());
    return found;
  }

  // For the results that have gradients: there 0 times infinity is not NaN. Where that would read
  // what was not kept, all others count as zeros.
  static DerivativeOf choose(Memory const& memory, Program const& program,
                             variable_list const& saved, variable_list const& grads) {
    std::vector<bool> given, needed(memory.needed.begin(), memory.needed.end());
    std::vector<bool> const all(grads.size(), true);
    DerivativeOf const derivative = find_gradient(program, needed, all, memory.dtypes);
    TORCH_CHECK(derivative != nullptr, "a gradient that was a program must be one again");
    for (Tensor const& grad : grads) given.push_back(grad.defined());
    if (given == all) return derivative;
    needed.clear();
    for (int64_t place : derivative->places) needed.push_back(place != Derivative::kNothing);
    DerivativeOf const found = find_gradient(program, needed, given, memory.dtypes);
    if (found == nullptr) return derivative;
    for (int64_t index : found->reads) {
      if (size_t(index) < saved.size() && !saved[index].defined()) return derivative;
    }
    return found;
  }
};

variable_list apply(Program const& program, Tensor const& acc, variable_list const& operands,
                    bool asynchronous) {
  std::vector<bool> needed = {acc.requires_grad()};
  std::vector<at::ScalarType> dtypes = {acc.scalar_type()};
  for (Tensor const& operand : operands) {
    needed.push_back(operand.requires_grad());
    dtypes.push_back(operand.scalar_type());
  }
  if (std::find(needed.begin(), needed.end(), true) == needed.end()) {
    return run_program(program, acc, operands, asynchronous);
  }
  std::vector<bool> const given(program.outputs, true);
  DerivativeOf const derivative = find_gradient(program, needed, given, dtypes);
  if (derivative == nullptr) return compose(program, acc, operands);
  return AppliedProgram::apply(acc, at::TensorList(operands), program, derivative, asynchronous);
}

// differentiated.py's LinearEpilogue, of a function with one result.
struct LinearEpilogue : public Function<LinearEpilogue> {
  static constexpr bool is_traceable = true;
  static constexpr size_t kMatrices = 2, kOthers = 6;  // arguments behind the operands
  static constexpr size_t kAcc = 3;                    // among saved variables

  static variable_list forward(AutogradContext* ctx, Tensor const& x, Tensor const& weight,
                               at::TensorList operands, std::string const& recorded,
                               std::string const& precision, bool shares,
                               OptionalTensor const& kept, bool asynchronous,
                               OptionalTensor const& main_grad) {
    Tensor const split =
        shares ? make_shared_split(x, weight, precision, /*batch_norm=*/false, kept) : Tensor();
    std::shared_ptr<RecordedCall const> const call = read_recorded(recorded);
    variable_list results = run(x, weight, operands, *call, precision, split, asynchronous);
    Memory memory;
    memory.program = recorded;
    memory.is_asynchronous = asynchronous;
    // Where acc is read and not there, the result is kept in its place.
    bool const is_kept = results.size() > 1 || call->gradient->has_read(0);
    variable_list read = {is_kept ? results.back() : Tensor()};
    int64_t index = 1;  // acc is the first that a gradient reads
    for (Tensor const& operand : operands) {
      memory.describe(operand);
      bool const is_read = call->is_first_order() || call->gradient->has_read(index) ||
                           (call->with_acc != nullptr && call->with_acc->has_read(index));
      read.push_back(is_read ? operand : Tensor());
      ++index;
    }
    keep_for_product(ctx, x, weight, {}, precision, split, read);
    keep_main_grad(ctx, main_grad);
    keep(ctx, memory);
    ctx->set_materialize_grads(false);
    return results;
  }

  static variable_list run(Tensor const& x, Tensor const& weight, at::TensorList operands,
                           RecordedCall const& call, std::string const& precision,
                           Tensor const& split, bool asynchronous) {
    static NamedOp const op(OP_NAME("linear_epilogue"));
    static int const split_at = op.index("weight_split"), last = op.index("asynchronous");
    torch::jit::Stack stack = op.arguments();
    stack[0] = x;
    stack[1] = weight;
    stack[2] = operands.vec();
    stack[3] = call.forward.text;
    stack[4] = to_argument(precision);
    stack[5] = call.forward.out;
    if (split.defined()) stack[split_at] = split;
    stack[last] = asynchronous;
    // The results are nobody's views, whatever they are made of.
    at::AutoDispatchBelowADInplaceOrView const guard;
    return op.run(std::move(stack)).front().toTensorVector();
  }

  static variable_list backward(AutogradContext* ctx, variable_list const& grads) {
    Memory const memory = find_memory(ctx);
    size_t const operands = memory.shapes.size(), count = kMatrices + operands + kOthers;
    Tensor const* const given = find_defined(grads, grads.size());
    if (given == nullptr) return variable_list(count);
    c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
    variable_list const saved = ctx->get_saved_variables();
    bool const composed = is_composed(*given);
    variable_list const found = differentiate(ctx, memory, saved, grads, composed);
    bool const is_multiplied =
        found[0].defined() && (ctx->needs_input_grad(0) || ctx->needs_input_grad(1));
    variable_list results =
        is_multiplied ? differentiate_product(ctx, saved, found[0], count) : variable_list(count);
    std::vector<Summand> summands;
    for (size_t i = 0; i < operands; ++i) {
      bool const is_wanted = ctx->needs_input_grad(kMatrices + i);
      summands.push_back({is_wanted ? found[1 + i] : Tensor(), memory.shapes[i], memory.dtypes[i]});
    }
    variable_list const sums = sum_all(summands, composed, memory.is_asynchronous);
    std::copy(sums.begin(), sums.end(), results.begin() + kMatrices);
    return results;
  }

  // The gradients of acc and of the operands, element by element.
  static variable_list differentiate(AutogradContext* ctx, Memory const& memory,
                                     variable_list const& saved, variable_list const& grads,
                                     bool composed) {
    std::shared_ptr<RecordedCall const> const kept = read_recorded(memory.program);
    RecordedCall const& call = *kept;
    Tensor const& grad = grads[0];
    Tensor of_acc = grads.size() > 1 ? grads[1] : Tensor();
    variable_list found(1 + memory.shapes.size());
    DerivativeOf derivative = call.gradient;
    if (grad.defined() && composed && call.is_first_order()) {
      std::vector<bool> needed = {ctx->needs_input_grad(0) || ctx->needs_input_grad(1)};
      for (size_t i = 1; i < found.size(); ++i) {
        needed.push_back(ctx->needs_input_grad(kMatrices + i - 1));
      }
      variable_list const operands(saved.begin() + kAcc + 1, saved.end());
      found = differentiate_by_pytorch(call.function, saved[kAcc], operands, grad, needed);
    } else if (grad.defined() && derivative->outputs > 0) {
      variable_list tensors(saved.begin() + kAcc, saved.end());
      // A result in place of acc, as of a ReLU: the gradient is constant in it.
      if (call.forward.outputs == 1 && tensors[0].defined()) tensors[0] = tensors[0].detach();
      tensors.push_back(call.width > 1 ? spread_groups(grad, call.width) : grad);
      if (of_acc.defined() && call.with_acc != nullptr) {
        derivative = call.with_acc;
        tensors.push_back(of_acc);
        of_acc = Tensor();
      }
      variable_list read;
      for (int64_t index : derivative->reads) read.push_back(tensors[index]);
      Tensor const& first = derivative->first == Derivative::kNothing ? tensors[0] : grad;
      variable_list const outputs =
          run_derivative(*derivative, composed, first, read, memory.is_asynchronous);
      for (size_t i = 0; i < found.size(); ++i) {
        int64_t const place = derivative->places[i];
        if (place != Derivative::kNothing) found[i] = outputs[place];
      }
    }
    if (of_acc.defined()) add_to_found(found, of_acc, call.shift);
    return found;
  }

  static void add_to_found(variable_list& found, Tensor const& of_acc, int64_t shift) {
    Tensor const of_shift = shift == Derivative::kNothing ? Tensor() : found[1 + shift];
    if (!found[0].defined() && of_shift.defined() && of_shift.sizes() != of_acc.sizes()) {
      // A sum over the rows; nobody asks for the gradient of acc.
      found[1 + shift] = of_shift + sum_to(of_acc, of_shift.sizes(), of_shift.scalar_type());
      return;
    }
    Tensor const of_sum = found[0].defined() ? found[0] : of_shift;
    found[0] = of_sum.defined() ? of_sum + of_acc : of_acc;
    if (shift != Derivative::kNothing) found[1 + shift] = found[0];
  }
};

Tensor linear_epilogue_with_gradient(Tensor const& x, Tensor const& weight, at::TensorList operands,
                                     std::string recorded, std::string precision, bool shares,
                                     OptionalTensor const& kept, bool asynchronous,
                                     OptionalTensor const& main_grad) {
  check_recorded(*read_recorded(recorded), static_cast<int64_t>(operands.size()));
  return LinearEpilogue::apply(x, weight, operands, recorded, precision, shares, kept, asynchronous,
                               main_grad)
      .front();
}

}  // namespace

void define_programs(torch::Library& library) {
  library.def(
      "linear_epilogue_with_gradient(Tensor x, Tensor weight, Tensor[] operands, str recorded, "
      "str precision, bool shares, Tensor? kept, bool asynchronous, Tensor? main_grad) "
      "-> Tensor");
  // The kernels of these are in Python (cutlass_fused/programs/native.py).
  library.def(
      "transformed_program(Tensor acc, Tensor[] operands, str program, str out) -> Tensor[]");
  library.def(
      "gradient_by_pytorch(Tensor acc, Tensor[] operands, Tensor grad, str function, "
      "bool[] needed) -> (Tensor[], bool[])");
  library.def("gradient_of_program(str program) -> str");
  library.impl(
      "linear_epilogue_with_gradient",
      torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(linear_epilogue_with_gradient)));
}

}  // namespace cutlass_fused
