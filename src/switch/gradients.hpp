// What functions with gradients in C++ share.
#pragma once

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cutlass_fused {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

using OptionalTensor = std::optional<Tensor>;
using Word = std::optional<std::string>;

// An op of this package, called with what differs from its defaults.
class NamedOp {
 public:
  explicit NamedOp(char const* name)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "")) {
    for (c10::Argument const& argument : op_.schema().arguments()) {
      defaults_.push_back(argument.default_value().value_or(c10::IValue()));
    }
  }

  int index(char const* name) const { return *op_.schema().argumentIndexWithName(name); }
  torch::jit::Stack arguments() const { return defaults_; }
  // What is recorded is this call as a whole. What it writes to is counted.
  torch::jit::Stack run(torch::jit::Stack stack) const {
    at::AutoDispatchBelowAutograd const guard;
    op_.callBoxed(&stack);
    return stack;
  }
  Tensor call(torch::jit::Stack stack) const {
    return std::move(run(std::move(stack)).front()).toTensor();
  }

 private:
  c10::OperatorHandle op_;
  torch::jit::Stack defaults_;
};

// (..., K) as (M, K), also where K is 0.
Tensor to_rows(Tensor const& tensor);

// A word as an argument of an op, made once for those that there are.
inline c10::IValue to_argument(std::string const& precision) {
  static c10::IValue const ieee("ieee"), tf32("tf32");
  return precision == "tf32" ? tf32 : precision == "ieee" ? ieee : c10::IValue(precision);
}

// Whether torch.func is around, or the older way in which batches of gradients (is_grads_batched)
// are mapped.
inline bool is_transformed() {
  using c10::impl::tls_is_dispatch_key_included;
  return tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         tls_is_dispatch_key_included(c10::DispatchKey::VmapMode);
}

// Whether it carries a derivative in forward mode.
inline bool has_tangent(Tensor const& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

// Whether the steps of a backward pass that gets this gradient must be such as PyTorch
// differentiates, in one mode or the other.
inline bool is_differentiated(Tensor const& gradient) {
  return c10::GradMode::is_enabled() || has_tangent(gradient);
}

// Whether there are kernels for tensors of it.
inline bool has_kernels(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Whether an op without derivatives, and for one gradient at a time, may take it.
inline bool is_plain(Tensor const& gradient) {
  return !is_transformed() && !is_differentiated(gradient);
}

// a @ b, in the precision of the forward pass, with derivatives of all orders and modes.
// `split`: what split_weight made of b, or nothing.
Tensor multiply(Tensor const& a, Tensor const& b, std::string const& precision,
                Tensor const& split = Tensor());

// What the forward pass leaves for the products of the backward pass, and `more` behind it.
void keep_for_product(AutogradContext* ctx, Tensor const& x, Tensor const& weight,
                      OptionalTensor const& bias, std::string const& precision, Tensor const& split,
                      variable_list const& more);

// The gradients of x, weight and bias from that of z, in a list of as many as `forward` has
// arguments. `sums`: of the columns of grad_z, if they are there.
variable_list differentiate_product(AutogradContext* ctx, variable_list const& saved,
                                    Tensor const& grad_z, size_t count,
                                    Tensor const& sums = Tensor());

// A buffer that the gradient of a weight is added to, in place of a result; or none.
void keep_main_grad(AutogradContext* ctx, OptionalTensor const& main_grad);

// In `saved_data`, whether a weight (N, K) lies along N, as the transpose of a parameter (K, N).
constexpr char kAlongN[] = "along_n";

// The gradient of the weight, rows.T @ x of the gradient of z (M, N) and of x (M, K), that lies as
// the weight does, so that a parameter (K, N) gets it without a copy; undefined where it has been
// added to a buffer.
Tensor differentiate_weight(AutogradContext* ctx, Tensor const& rows, Tensor const& x,
                            std::string const& precision);

// The same for a gradient that is there already: in this dtype, or added as it is.
Tensor give_or_add(AutogradContext* ctx, Tensor const& grad_weight, at::ScalarType type);

void define_batch_norm(torch::Library& library);
void define_linear_batch_norm(torch::Library& library);
void define_programs(torch::Library& library);

}  // namespace cutlass_fused
