// batch_norm in training, with gradients in C++: gradients.cpp tells why. The formulas are those of
// cutlass_fused/functional/_batch_norm.py.
#include "op_namespace.hpp"
#include "switch/norms/differentiate.hpp"

namespace cutlass_fused {
namespace {

struct BatchNorm : public Function<BatchNorm> {
  static constexpr bool is_traceable = true;
  static constexpr size_t kGamma = 4, kBeta = 5, kArguments = 8;

  static Tensor forward(AutogradContext* ctx, Tensor const& x, OptionalTensor const& running_mean,
                        OptionalTensor const& running_var,
                        OptionalTensor const& num_batches_tracked, OptionalTensor const& gamma,
                        OptionalTensor const& beta, std::optional<double> momentum, double eps) {
    static NamedOp const op(OP_NAME("batch_norm_train"));
    torch::jit::Stack const results =
        op.run({x, running_mean, running_var, num_batches_tracked, gamma, beta, momentum, eps});
    Tensor const y = results[0].toTensor(), mean = results[1].toTensor(),
                 rstd = results[2].toTensor();
    ctx->save_for_backward({x, gamma.value_or(Tensor()), mean, rstd});
    ctx->set_materialize_grads(false);
    ctx->saved_data["eps"] = eps;
    at::ScalarType const type = x.scalar_type();
    auto const dtype_of = [&](OptionalTensor const& tensor) {
      return static_cast<int64_t>(tensor ? tensor->scalar_type() : type);
    };
    ctx->saved_data["gamma_dtype"] = dtype_of(gamma);
    ctx->saved_data["beta_dtype"] = dtype_of(beta);
    ctx->saved_data["places"] =
        place_inputs({&running_mean, &running_var, &num_batches_tracked, &gamma, &beta}, 1);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list const& grads) {
    variable_list results(kArguments);
    Tensor const& grad_y = grads[0];
    if (!grad_y.defined()) return results;
    c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
    variable_list const saved = ctx->get_saved_variables();
    Tensor const &x = saved[0], &gamma = saved[1], &mean = saved[2], &rstd = saved[3];
    at::ScalarType const type = x.scalar_type(), gamma_type = dtype(ctx, "gamma_dtype"),
                         beta_type = dtype(ctx, "beta_dtype");
    // The kernels round to the dtype of the parameters, if that is the one of x.
    bool const rounds = gamma_type == type && beta_type == type && grad_y.scalar_type() == type;
    NormGradients const norm =
        differentiate_norm(grad_y, x, mean, rstd, gamma, ctx->saved_data["eps"].toDouble(), rounds);
    std::vector<int64_t> const places = ctx->saved_data["places"].toIntVector();
    auto const needs = [&](size_t argument) {
      int64_t const place = argument == 0 ? 0 : places[argument - 1];
      return place >= 0 && ctx->needs_input_grad(static_cast<size_t>(place));
    };
    if (needs(0)) results[0] = norm.z.to(type);
    if (needs(kGamma)) results[kGamma] = norm.gamma.to(gamma_type);
    if (needs(kBeta)) results[kBeta] = norm.beta.to(beta_type);
    return results;
  }

 private:
  static at::ScalarType dtype(AutogradContext* ctx, char const* name) {
    return static_cast<at::ScalarType>(ctx->saved_data[name].toInt());
  }
};

Tensor train(Tensor const& x, OptionalTensor const& running_mean, OptionalTensor const& running_var,
             OptionalTensor const& num_batches_tracked, OptionalTensor const& gamma,
             OptionalTensor const& beta, std::optional<double> momentum, double eps) {
  return BatchNorm::apply(x, running_mean, running_var, num_batches_tracked, gamma, beta, momentum,
                          eps);
}

}  // namespace

void define_batch_norm(torch::Library& library) {
  library.def(
      "batch_norm_train_with_gradient(Tensor x, Tensor(a!)? running_mean, "
      "Tensor(b!)? running_var, Tensor(c!)? num_batches_tracked, Tensor? gamma, Tensor? beta, "
      "float? momentum, float eps) -> Tensor");
  library.impl("batch_norm_train_with_gradient",
               torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(train)));
}

}  // namespace cutlass_fused
