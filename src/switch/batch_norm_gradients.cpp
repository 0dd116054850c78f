// Linear, scale and BatchNorm in training, with gradients in C++: gradients.cpp tells why. The
// formulas are those of cutlass_fused/functional/_linear_scale_batch_norm.py.
#include "switch/gradients.hpp"

namespace cutlass_fused {
namespace {

Tensor sum_rows(Tensor const& tensor) { return tensor.sum(at::IntArrayRef{0}); }

Tensor add_if_defined(Tensor const& a, Tensor const& b) {
  return a.defined() && b.defined() ? a + b : a.defined() ? a : b;
}

Tensor scale_by(Tensor const& scale, Tensor const& columns) {
  return scale.defined() ? columns * scale : columns;
}

// a @ b, with 16-bit matrices in fp32: for what is not the last step of a gradient.
Tensor multiply_unrounded(Tensor const& a, Tensor const& b, std::string const& precision) {
  if (a.element_size() > 2) return multiply(a, b, precision);
  if (a.is_cuda() && !c10::GradMode::is_enabled()) return at::mm(a, b, at::kFloat);
  return multiply(a.to(at::kFloat), b.to(at::kFloat), precision);
}

// The gradients of z, gamma and beta through the statistics of the batch.
struct NormGradients {
  Tensor z, gamma, beta;
};

// Of ops that PyTorch differentiates: mean and rstd are computed again.
NormGradients compose_gradients(Tensor grad_y, Tensor z, Tensor const& gamma, double eps,
                                at::ScalarType type) {
  double const rows = double(std::max(z.size(0), int64_t(1)));
  z = z.to(type);
  grad_y = grad_y.to(type);
  Tensor const centred = z - sum_rows(z) / rows;
  Tensor const rstd = 1 / at::sqrt(sum_rows(centred.square()) / rows + eps);
  Tensor const n = centred * rstd;
  Tensor const grad_gamma = sum_rows(grad_y * n), grad_beta = sum_rows(grad_y);
  Tensor const share = (grad_beta + n * grad_gamma) / rows;
  Tensor const factor = gamma.defined() ? rstd * gamma.to(type) : rstd;
  return {(grad_y - share) * factor, grad_gamma, grad_beta};
}

NormGradients differentiate_norm(Tensor grad_y, Tensor z, Tensor const& mean, Tensor const& rstd,
                                 Tensor gamma, double eps) {
  at::ScalarType const type = rstd.scalar_type();
  if (c10::GradMode::is_enabled()) return compose_gradients(grad_y, z, gamma, eps, type);
  if (z.numel() == 0) return {at::zeros_like(z), at::zeros_like(rstd), at::zeros_like(rstd)};
  if (gamma.defined()) gamma = gamma.to(type);
  if (z.is_cuda() && type == at::kFloat) {
    static NamedOp const op("cutlass_fused::batch_norm_gradient");
    at::ScalarType const wider = at::promote_types(grad_y.scalar_type(), z.scalar_type());
    c10::IValue const of_gamma = gamma.defined() ? c10::IValue(gamma) : c10::IValue();
    torch::jit::Stack const results = op.run({grad_y.to(wider), z.to(wider), mean, rstd, of_gamma});
    return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
  }
  if (!z.is_cuda()) {  // which wants 16-bit statistics beside 16-bit z
    grad_y = grad_y.to(type);
    z = z.to(type);
  }
  // It reads its vectors as if their stride were 1.
  gamma = gamma.defined() ? gamma.contiguous() : at::ones_like(rstd);
  auto const [grad_z, grad_gamma, grad_beta] =
      at::native_batch_norm_backward(grad_y.contiguous(), z.contiguous(), gamma, {}, {}, mean, rstd,
                                     /*train=*/true, /*eps=*/0.0, {true, true, true});
  return {grad_z, grad_gamma, grad_beta};
}

// _replace_cancelled in the Python file.
Tensor replace_cancelled(Tensor const& direct, Tensor const& scale, Tensor const& grad_n,
                         Tensor const& rstd, double eps) {
  Tensor const share = eps * rstd.square();
  return at::where(share > 0.5, direct, grad_n * share / scale);
}

// Where inputs stand among those that are tensors, as needs_input_grad counts; -1: it is none.
enum Input { kX, kWeight, kBias, kScale, kGamma, kBeta };

bool needs(AutogradContext* ctx, Input input) {
  int64_t const index = ctx->saved_data["indices"].toIntVector()[input];
  return index >= 0 && ctx->needs_input_grad(size_t(index));
}

struct ScaleBatchNorm : public Function<ScaleBatchNorm> {
  static constexpr bool is_traceable = true;
  static constexpr size_t kArguments = 13;

  // y, and v less a shift: by its gradients a second backward pass comes back.
  static variable_list forward(AutogradContext* ctx, Tensor const& x, Tensor const& weight,
                               OptionalTensor const& bias, OptionalTensor const& scale,
                               OptionalTensor const& running_mean,
                               OptionalTensor const& running_var,
                               OptionalTensor const& num_batches_tracked,
                               OptionalTensor const& gamma, OptionalTensor const& beta,
                               std::optional<double> momentum, double eps,
                               std::string const& precision, Word const& out) {
    static NamedOp const op("cutlass_fused::linear_scale_batch_norm_train");
    static int const keep_z_at = op.index("keep_z"), centre_at = op.index("centre"),
                     out_at = op.index("out");
    at::ScalarType const wide =
        x.scalar_type() == at::kDouble ? at::kDouble : at::ScalarType::Float;
    Tensor const centre = at::empty({weight.size(0)}, x.options().dtype(wide));
    torch::jit::Stack stack = op.arguments();
    std::vector<c10::IValue> const given = {
        x,     weight, bias,     scale, running_mean, running_var, num_batches_tracked,
        gamma, beta,   momentum, eps,   precision};
    std::copy(given.begin(), given.end(), stack.begin());
    stack[keep_z_at] = true;
    stack[centre_at] = centre;
    if (out) stack[out_at] = *out;
    torch::jit::Stack const results = op.run(std::move(stack));
    Tensor const y = results[0].toTensor(), v = results[1].toTensor(), mean = results[2].toTensor(),
                 rstd = results[3].toTensor();

    auto const asks = [](OptionalTensor const& tensor) {
      return tensor.has_value() && tensor->requires_grad();
    };
    bool const reads_both = asks(scale);
    ctx->save_for_backward({weight.requires_grad() || reads_both ? x : Tensor(),
                            x.requires_grad() || reads_both ? weight : Tensor(),
                            scale.value_or(Tensor()), gamma.value_or(Tensor()), v, rstd, centre});
    ctx->set_materialize_grads(false);
    ctx->saved_data["precision"] = precision;
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["x_dtype"] = static_cast<int64_t>(x.scalar_type());
    auto const dtype_of = [](OptionalTensor const& tensor) {
      return tensor ? static_cast<int64_t>(tensor->scalar_type()) : int64_t(-1);
    };
    ctx->saved_data["bias_dtype"] = dtype_of(bias);
    ctx->saved_data["beta_dtype"] = dtype_of(beta);
    std::vector<int64_t> indices;
    int64_t next = 2;
    auto const place = [&](OptionalTensor const& tensor) { return tensor ? next++ : int64_t(-1); };
    int64_t const of_bias = place(bias), of_scale = place(scale);
    for (OptionalTensor const* tensor : {&running_mean, &running_var, &num_batches_tracked}) {
      place(*tensor);
    }
    int64_t const of_gamma = place(gamma), of_beta = place(beta);
    ctx->saved_data["indices"] = std::vector<int64_t>{0, 1, of_bias, of_scale, of_gamma, of_beta};
    return {y, v};
  }

  static variable_list backward(AutogradContext* ctx, variable_list const& grads) {
    variable_list results(kArguments);
    Tensor const &grad_y = grads[0], &grad_kept = grads[1];
    if (!grad_y.defined() && !grad_kept.defined()) return results;
    c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
    variable_list const saved = ctx->get_saved_variables();
    Tensor const &x = saved[0], &weight = saved[1], &scale = saved[2], &gamma = saved[3],
                 &v = saved[4], &rstd = saved[5], &centre = saved[6];
    std::string const precision = ctx->saved_data["precision"].toStringRef();
    double const eps = ctx->saved_data["eps"].toDouble();
    auto const x_dtype = static_cast<at::ScalarType>(ctx->saved_data["x_dtype"].toInt());

    NormGradients norm;
    if (grad_y.defined()) norm = differentiate_norm(grad_y, v, centre, rstd, gamma, eps);
    Tensor const grad_v = add_if_defined(norm.z, grad_kept);
    if (needs(ctx, kX)) {
      results[0] = multiply(scale_by(scale, grad_v).to(weight.scalar_type()), weight, precision);
    }
    if (needs(ctx, kScale)) {
      // (N, M) @ (M, K)
      Tensor const unscaled = multiply_unrounded(grad_v.to(x_dtype).t(), x, precision);
      results[1] = (unscaled * scale.reshape({-1, 1})).to(x_dtype);
      Tensor of_scale = (unscaled * weight).sum(at::IntArrayRef{1}, false, rstd.scalar_type());
      if (!grad_kept.defined() && !c10::GradMode::is_enabled()) {
        Tensor const grad_n = gamma.defined() ? norm.gamma * gamma : norm.gamma;
        of_scale = replace_cancelled(of_scale, scale, grad_n, rstd, eps);
      }
      if (scale.numel() == 1) of_scale = of_scale.sum();
      results[3] = of_scale.reshape(scale.sizes()).to(scale.scalar_type());
    } else if (needs(ctx, kWeight)) {
      Tensor const rows = scale_by(scale, grad_v).to(x_dtype);
      results[1] = multiply(rows.t(), x, precision);
    }
    if (needs(ctx, kBias)) {
      auto const dtype = static_cast<at::ScalarType>(ctx->saved_data["bias_dtype"].toInt());
      results[2] = at::zeros_like(rstd, rstd.options().dtype(dtype));
    }
    if (grad_y.defined()) {
      if (needs(ctx, kGamma)) results[7] = norm.gamma.to(gamma.scalar_type());
      if (needs(ctx, kBeta)) {
        auto const dtype = static_cast<at::ScalarType>(ctx->saved_data["beta_dtype"].toInt());
        results[8] = norm.beta.to(dtype);
      }
    }
    return results;
  }
};

Tensor scale_batch_norm_with_gradient(Tensor const& x, Tensor const& weight,
                                      OptionalTensor const& bias, OptionalTensor const& scale,
                                      OptionalTensor const& running_mean,
                                      OptionalTensor const& running_var,
                                      OptionalTensor const& num_batches_tracked,
                                      OptionalTensor const& gamma, OptionalTensor const& beta,
                                      std::optional<double> momentum, double eps,
                                      std::string precision, Word out) {
  return ScaleBatchNorm::apply(x, weight, bias, scale, running_mean, running_var,
                               num_batches_tracked, gamma, beta, momentum, eps, precision, out)[0];
}

}  // namespace

void define_batch_norm(torch::Library& library) {
  library.def(
      "linear_scale_batch_norm_train_with_gradient(Tensor x, Tensor weight, Tensor? bias, Tensor? "
      "scale, Tensor(a!)? running_mean, Tensor(b!)? running_var, Tensor(c!)? num_batches_tracked, "
      "Tensor? gamma, Tensor? beta, float? momentum, float eps, str precision, str? out)"
      " -> Tensor");
  library.impl(
      "linear_scale_batch_norm_train_with_gradient",
      torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(scale_batch_norm_with_gradient)));
}

}  // namespace cutlass_fused
