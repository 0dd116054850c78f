// Linear and LeakyReLU with gradients in C++, for training step by step: a torch.autograd.Function
// in Python takes longer on the host than the layers that it stands for. Python calls them where
// nothing else looks at a call (cutlass_fused/functional/_derived/native.py); of everything else,
// and without this library, its own Functions take care.
#include "switch/gradients.hpp"

#include <ATen/Context.h>

#include "op_namespace.hpp"
#include "switch/by_pytorch.hpp"
#include "switch/program_ops.hpp"
#include "switch/shared_split.hpp"
#include "switch/views.hpp"

namespace cutlass_fused {
namespace {

// Whether there are fp32 numbers on a GPU behind these, and nobody who looks at what is called.
bool are_numbers(std::initializer_list<Tensor const*> tensors) {
  using c10::DispatchKey;
  if (c10::impl::tls_is_dispatch_key_included(DispatchKey::Python)) return false;
  for (Tensor const* tensor : tensors) {
    if (!tensor->is_cuda() || tensor->scalar_type() != at::kFloat ||
        tensor->key_set().has(DispatchKey::Python) || tensor->numel() == 0) {
      return false;
    }
  }
  return true;
}

// x (..., K) as it lies, in rows; undefined: it does not.
Tensor view_rows(Tensor const& x) {
  if (x.dim() == 2) return x;
  if (x.dim() == 0 || !x.is_contiguous()) return {};
  int64_t const k = x.size(-1);
  return view(x, {x.numel() / k, k}, {k, 1});
}

// x @ weight.T + bias by PyTorch, where that is as good; else undefined.
Tensor call_pytorch(Tensor const& x, Tensor const& weight, OptionalTensor const& bias,
                    std::string const& precision) {
  bool const in_tf32 = precision == "tf32";
  if (!in_tf32 && precision != "ieee") return {};  // the op says so
  if (!are_numbers({&x, &weight}) || weight.dim() != 2 || x.device() != weight.device()) return {};
  if (bias && !(bias->dim() == 1 && bias->size(0) == weight.size(0) &&
                bias->scalar_type() == at::kFloat && bias->device() == x.device())) {
    return {};
  }
  Tensor const rows = view_rows(x), b = transpose(weight);
  if (!rows.defined() || rows.size(1) != b.size(0) || !is_by_pytorch(rows, b, in_tf32)) return {};
  at::AutoDispatchBelowAutograd const guard;
  c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
  Inside const inside;
  Tensor const y = bias ? at::addmm(*bias, rows, b) : at::mm(rows, b);
  if (x.dim() == 2) return y;
  std::vector<int64_t> shape = x.sizes().vec(), strides(shape.size(), 1);
  shape.back() = y.size(1);
  for (size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  // To autograd a view of nothing: what a Function gives as a view cannot be written to in place.
  return view(y, shape, strides);
}

Tensor call_linear(Tensor const& x, Tensor const& weight, OptionalTensor const& bias,
                   std::string const& precision, Tensor const& split, Word const& out) {
  if (!out) {
    Tensor const y = call_pytorch(x, weight, bias, precision);
    if (y.defined()) return y;
  }
  static NamedOp const op(OP_NAME("linear"));
  static int const precision_at = op.index("precision"), split_at = op.index("weight_split"),
                   out_at = op.index("out");
  torch::jit::Stack stack = op.arguments();
  stack[0] = x;
  stack[1] = weight;
  if (bias) stack[2] = *bias;
  stack[precision_at] = to_argument(precision);
  if (split.defined()) stack[split_at] = split;
  if (out) stack[out_at] = *out;
  return op.call(std::move(stack));
}

// The gradient of a bias. Nobody waits for the kernel: PyTorch adds up until it is there, unless
// the bits of each call are to be the same.
Tensor add_rows(Tensor const& rows, at::ScalarType dtype) {
  bool const composed = is_differentiated(rows) || is_transformed();
  bool const asynchronous = !at::globalContext().deterministicAlgorithms();
  return sum_all({{rows, rows.sizes().slice(1), dtype}}, composed, asynchronous).front();
}

}  // namespace

void keep_for_product(AutogradContext* ctx, Tensor const& x, Tensor const& weight,
                      OptionalTensor const& bias, std::string const& precision, Tensor const& split,
                      variable_list const& more) {
  variable_list kept = {weight.requires_grad() ? x : Tensor(),
                        x.requires_grad() ? weight : Tensor(), split};
  kept.insert(kept.end(), more.begin(), more.end());
  ctx->save_for_backward(std::move(kept));
  ctx->saved_data["precision"] = precision;
  bool const lies_along_n = weight.dim() == 2 && weight.stride(0) == 1 && weight.stride(1) > 1;
  ctx->saved_data[kAlongN] = lies_along_n;
  if (bias) ctx->saved_data["bias_dtype"] = static_cast<int64_t>(bias->scalar_type());
}

variable_list differentiate_product(AutogradContext* ctx, variable_list const& saved,
                                    Tensor const& grad_z, size_t count, Tensor const& sums) {
  variable_list grads(count);
  Tensor const &x = saved[0], &weight = saved[1], &split = saved[2];
  std::string const precision = ctx->saved_data["precision"].toStringRef();
  Tensor const rows = to_rows(grad_z);
  if (ctx->needs_input_grad(0)) {
    std::vector<int64_t> shape = grad_z.sizes().vec();
    shape.back() = weight.size(1);
    Tensor const grad_x = multiply(rows.to(weight.scalar_type()), weight, precision, split);
    grads[0] = grad_z.dim() == 2 ? grad_x : grad_x.reshape(shape);
  }
  if (ctx->needs_input_grad(1)) {
    grads[1] = differentiate_weight(ctx, rows.to(x.scalar_type()), to_rows(x), precision);
  }
  auto const bias_dtype = ctx->saved_data.find("bias_dtype");
  if (bias_dtype != ctx->saved_data.end() && ctx->needs_input_grad(2)) {
    auto const dtype = static_cast<at::ScalarType>(bias_dtype->second.toInt());
    grads[2] = sums.defined() ? sums.to(dtype) : add_rows(rows, dtype);
  }
  return grads;
}

namespace {

struct Linear : public Function<Linear> {
  static constexpr bool is_traceable = true;

  // `given`: what was made of the weight before.
  static Tensor forward(AutogradContext* ctx, Tensor const& x, Tensor const& weight,
                        OptionalTensor const& bias, std::string const& precision, Word const& out,
                        bool shares, OptionalTensor const& kept, OptionalTensor const& given,
                        OptionalTensor const& main_grad) {
    Tensor split = given.value_or(Tensor());
    if (shares) split = make_shared_split(x, weight, precision, /*batch_norm=*/false, kept);
    keep_for_product(ctx, x, weight, bias, precision, split, {});
    keep_main_grad(ctx, main_grad);
    return call_linear(x, weight, bias, precision, split, out);
  }

  static variable_list backward(AutogradContext* ctx, variable_list const& grads) {
    constexpr size_t kArguments = 9;
    if (!grads[0].defined()) return variable_list(kArguments);
    c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
    return differentiate_product(ctx, ctx->get_saved_variables(), grads[0], kArguments);
  }
};

}  // namespace

Tensor to_rows(Tensor const& tensor) {
  if (tensor.dim() == 2) return tensor;
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < tensor.dim(); ++i) rows *= tensor.size(i);
  return tensor.reshape({rows, tensor.size(-1)});
}

namespace {

// b.t() where nobody asks for a gradient of it: without PyTorch's dispatcher, unless b is one of
// those that stand for others, as while a backward pass is compiled.
Tensor transpose_unrecorded(Tensor const& b) {
  if (b.dim() != 2 || b.key_set().has(c10::DispatchKey::Python)) return b.t();
  return transpose(b);
}

}  // namespace

// PyTorch's product follows its own setting for fp32 on the GPU. What a Function in C++ has neither
// derivatives in forward mode nor batches for goes to Python.
Tensor multiply(Tensor const& a, Tensor const& b, std::string const& precision,
                Tensor const& split) {
  if (!a.is_cuda() || a.scalar_type() != at::kFloat) return at::mm(a, b);
  if (is_transformed() || has_tangent(a) || has_tangent(b)) {
    static auto const op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow(OP_NAME("transformed_product"), "")
                               .typed<Tensor(Tensor const&, Tensor const&, std::string)>();
    return op.call(a, b, precision);
  }
  if (!c10::GradMode::is_enabled()) {
    return call_linear(a, transpose_unrecorded(b), {}, precision, split, {});
  }
  OptionalTensor const given = split.defined() ? OptionalTensor(split) : std::nullopt;
  return Linear::apply(a, b.t(), OptionalTensor(), precision, Word(), /*shares=*/false,
                       /*kept=*/OptionalTensor(), given, OptionalTensor());
}

namespace {

Tensor call_leaky_relu(Tensor const& x, Tensor const& weight, OptionalTensor const& bias,
                       double multiplier, double slope, std::string const& precision,
                       Tensor const& split, Word const& out) {
  static NamedOp const op(OP_NAME("linear_scale_leaky_relu"));
  static int const multiplier_at = op.index("multiplier"), slope_at = op.index("negative_slope"),
                   precision_at = op.index("precision"), split_at = op.index("weight_split"),
                   out_at = op.index("out");
  torch::jit::Stack stack = op.arguments();
  stack[0] = x;
  stack[1] = weight;
  if (bias) stack[2] = *bias;
  stack[multiplier_at] = multiplier;
  stack[slope_at] = slope;
  stack[precision_at] = to_argument(precision);
  if (split.defined()) stack[split_at] = split;
  if (out) stack[out_at] = *out;
  return op.call(std::move(stack));
}

// Whether a kernel does in one pass what is to be done to this gradient.
bool has_kernel(Tensor const& grad_y) {
  return grad_y.is_cuda() && is_plain(grad_y) && has_kernels(grad_y.scalar_type());
}

std::pair<Tensor, Tensor> call_gradient(Tensor const& grad_y, Tensor const& positive, double factor,
                                        double negative_factor) {
  static NamedOp const op(OP_NAME("leaky_relu_gradient"));
  torch::jit::Stack results = op.run({grad_y, positive, factor, negative_factor});
  return {std::move(results[0]).toTensor(), std::move(results[1]).toTensor()};
}

// With a scale that is a number. The mask is a tensor of its own although y has the same signs: it
// is smaller, and y, like that of PyTorch's LeakyReLU, may be written to in place.
struct LeakyReLU : public Function<LeakyReLU> {
  static constexpr bool is_traceable = true;

  static Tensor forward(AutogradContext* ctx, Tensor const& x, Tensor const& weight,
                        OptionalTensor const& bias, double multiplier, double slope,
                        std::string const& precision, Word const& out, bool shares,
                        OptionalTensor const& kept, OptionalTensor const& main_grad) {
    Tensor const split =
        shares ? make_shared_split(x, weight, precision, /*batch_norm=*/false, kept) : Tensor();
    // With a negative slope y is positive everywhere. |slope| gives the signs of v, and -y is then
    // the value of the other branch.
    Tensor y = call_leaky_relu(x, weight, bias, multiplier, slope < 0 ? -slope : slope, precision,
                               split, out);
    at::AutoDispatchBelowADInplaceOrView const guard;
    Tensor const positive = y.gt(0);
    if (slope < 0) y = at::where(positive, y, y.neg());
    keep_for_product(ctx, x, weight, bias, precision, split, {positive});
    keep_main_grad(ctx, main_grad);
    ctx->saved_data["multiplier"] = multiplier;
    ctx->saved_data["slope"] = slope;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list const& grads) {
    constexpr size_t kArguments = 10;
    Tensor const& grad_y = grads[0];
    if (!grad_y.defined()) return variable_list(kArguments);
    c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
    variable_list const saved = ctx->get_saved_variables();
    double const multiplier = ctx->saved_data["multiplier"].toDouble();
    double const slope = ctx->saved_data["slope"].toDouble();
    Tensor const& positive = saved[3];
    if (!has_kernel(grad_y)) {
      Tensor const grad_z = at::where(positive, grad_y * multiplier, grad_y * (multiplier * slope));
      return differentiate_product(ctx, saved, grad_z, kArguments);
    }
    auto const [grad_z, sums] =
        call_gradient(to_rows(grad_y), to_rows(positive), multiplier, multiplier * slope);
    Tensor const shaped = grad_y.dim() == 2 ? grad_z : grad_z.view(grad_y.sizes());
    return differentiate_product(ctx, saved, shaped, kArguments, sums);
  }
};

Tensor linear_with_gradient(Tensor const& x, Tensor const& weight, OptionalTensor const& bias,
                            std::string precision, Word out, bool shares,
                            OptionalTensor const& kept, OptionalTensor const& main_grad) {
  return Linear::apply(x, weight, bias, precision, out, shares, kept, OptionalTensor(), main_grad);
}

Tensor leaky_relu_with_gradient(Tensor const& x, Tensor const& weight, OptionalTensor const& bias,
                                double multiplier, double negative_slope, std::string precision,
                                Word out, bool shares, OptionalTensor const& kept,
                                OptionalTensor const& main_grad) {
  return LeakyReLU::apply(x, weight, bias, multiplier, negative_slope, precision, out, shares, kept,
                          main_grad);
}

void define() {
  // Never destroyed: the ops stay, also while the process ends.
  static auto* const library =
      new torch::Library(torch::Library::FRAGMENT, OP_NAMESPACE, std::nullopt, __FILE__, __LINE__);
  library->def(
      "linear_with_gradient(Tensor x, Tensor weight, Tensor? bias, str precision, str? out, "
      "bool shares, Tensor? kept, Tensor? main_grad) -> Tensor");
  library->def(
      "linear_scale_leaky_relu_with_gradient(Tensor x, Tensor weight, Tensor? bias, float "
      "multiplier, float negative_slope, str precision, str? out, bool shares, "
      "Tensor? kept, Tensor? main_grad) -> Tensor");
  define_batch_norm(*library);
  define_linear_batch_norm(*library);
  define_programs(*library);
  // Its kernel is in Python (native.py).
  library->def("transformed_product(Tensor a, Tensor b, str precision) -> Tensor");
  library->impl("linear_with_gradient",
                torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(linear_with_gradient)));
  library->impl("linear_scale_leaky_relu_with_gradient",
                torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(leaky_relu_with_gradient)));
}

}  // namespace
}  // namespace cutlass_fused

// False: the ops are not there.
extern "C" __attribute__((visibility("default"))) bool cutlass_fused_switch_define_gradients() try {
  static bool const is_defined = (cutlass_fused::define(), true);
  return is_defined;
} catch (std::exception const&) {
  return false;
}
