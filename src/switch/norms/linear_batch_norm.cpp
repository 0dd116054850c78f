// Linear and BatchNorm in training, with a scale or a softmax, and their gradients in C++:
// gradients.cpp tells why. The formulas are those of _linear_scale_batch_norm.py and
// _linear_batch_norm_scale_softmax.py in cutlass_fused/functional/.
#include "op_namespace.hpp"
#include "switch/gradients.hpp"
#include "switch/norms/differentiate.hpp"
#include "switch/program_ops.hpp"
#include "switch/shared_split.hpp"

namespace cutlass_fused {
namespace {

Tensor add_if_defined(Tensor const& a, Tensor const& b) {
  return a.defined() && b.defined() ? a + b : a.defined() ? a : b;
}

Tensor scale_by(Tensor const& scale, Tensor const& columns) {
  return scale.defined() ? columns * scale : columns;
}

// a @ b, with 16-bit matrices in fp32: for what is not the last step of a gradient.
Tensor multiply_unrounded(Tensor const& a, Tensor const& b, std::string const& precision) {
  if (a.element_size() > 2) return multiply(a, b, precision);
  if (a.is_cuda() && is_plain(a)) return at::mm(a, b, at::kFloat);
  return multiply(a.to(at::kFloat), b.to(at::kFloat), precision);
}

// Of cutlass_fused/gradients/scale.hpp, whose headers are those of kernels.
constexpr double kShareOfSum = 0.9;

// As _replace_cancelled in _linear_scale_batch_norm.py, which tells why.
Tensor replace_cancelled(Tensor const& direct, Tensor const& scale, Tensor const& grad_n,
                         Tensor const& rstd, double eps) {
  Tensor const share = (rstd * rstd).mul_(eps);
  return at::where(share > kShareOfSum, direct, (grad_n * share).div_(scale));
}

// Where inputs stand among those that are tensors, as needs_input_grad counts; -1: it is none.
enum Input { kX, kWeight, kBias, kScale, kGamma, kBeta };

// And where among all, as their gradients do.
constexpr size_t kBiasAt = 2, kScaleAt = 3, kGammaAt = 7, kBetaAt = 8, kArguments = 16;

bool needs(AutogradContext* ctx, Input input) {
  int64_t const index = ctx->saved_data["indices"].toIntVector()[input];
  return index >= 0 && ctx->needs_input_grad(size_t(index));
}

// What a backward pass reads.
struct Saved {
  Tensor x, weight, split, scale, gamma, beta, y, v, rstd, centre;
  std::string precision;
  double eps;
  at::ScalarType x_dtype;

  explicit Saved(AutogradContext* ctx)
      : precision(ctx->saved_data["precision"].toStringRef()),
        eps(ctx->saved_data["eps"].toDouble()),
        x_dtype(dtype(ctx, "x_dtype")) {
    variable_list const saved = ctx->get_saved_variables();
    Tensor* const to[] = {&x, &weight, &split, &scale, &gamma, &beta, &y, &v, &rstd, &centre};
    for (size_t i = 0; i < saved.size(); ++i) *to[i] = saved[i];
  }
  static at::ScalarType dtype(AutogradContext* ctx, char const* name) {
    return static_cast<at::ScalarType>(ctx->saved_data[name].toInt());
  }
  // Whether the gradients of gamma and beta, where they are asked for, have this dtype.
  static bool are_rounded_alike(AutogradContext* ctx, at::ScalarType type) {
    return (!needs(ctx, kGamma) || dtype(ctx, "gamma_dtype") == type) &&
           (!needs(ctx, kBeta) || dtype(ctx, "beta_dtype") == type);
  }
};

// The sum of (N,) terms for a scale of one element or of N, in the dtype of the terms.
Tensor sum_for(Tensor const& scale, Tensor const& terms) {
  Tensor const total = scale.numel() == 1 ? terms.sum() : terms;
  return total.reshape(scale.sizes());
}

// linear_scale_batch_norm: v = z * scale in front of the batch norm.
struct ScaleInFront {
  static constexpr char kOp[] = OP_NAME("linear_scale_batch_norm_train");
  static constexpr bool kReadsResult = false, kMultipliesForScale = true;

  static void differentiate(AutogradContext* ctx, Saved const& saved, Tensor const& grad_y,
                            Tensor const& grad_kept, variable_list& results) {
    if (!grad_kept.defined() && has_kernels(grad_y, saved.v, saved.rstd)) {
      differentiate_by_kernels(ctx, saved, grad_y, results);
      return;
    }
    Tensor const &scale = saved.scale, &gamma = saved.gamma, &rstd = saved.rstd;
    NormGradients norm;
    if (grad_y.defined()) {
      norm = differentiate_norm(grad_y, saved.v, saved.centre, rstd, gamma, saved.eps);
      results[kGammaAt] = norm.gamma;
      results[kBetaAt] = norm.beta;
    }
    Tensor const grad_v = add_if_defined(norm.z, grad_kept), rows = scale_by(scale, grad_v);
    if (needs(ctx, kX)) {
      results[0] =
          multiply(rows.to(saved.weight.scalar_type()), saved.weight, saved.precision, saved.split);
    }
    if (needs(ctx, kScale)) {
      // (N, M) @ (M, K)
      Tensor const unscaled =
          multiply_unrounded(grad_v.to(saved.x_dtype).t(), saved.x, saved.precision);
      if (needs(ctx, kWeight)) {
        results[1] = give_or_add(ctx, scale_by(scale.reshape({-1, 1}), unscaled), saved.x_dtype);
      }
      Tensor of_scale =
          (unscaled * saved.weight).sum(at::IntArrayRef{1}, false, rstd.scalar_type());
      if (!grad_kept.defined() && !is_differentiated(grad_v)) {
        Tensor const grad_n = gamma.defined() ? norm.gamma * gamma : norm.gamma;
        of_scale = replace_cancelled(of_scale, scale, grad_n, rstd, saved.eps);
      }
      results[kScaleAt] = sum_for(scale, of_scale);
    } else if (needs(ctx, kWeight)) {
      results[1] = differentiate_weight(ctx, rows.to(saved.x_dtype), saved.x, saved.precision);
    }
  }

 private:
  // include/cutlass_fused/gradients/scale.hpp: one product serves the weight and the scale.
  static void differentiate_by_kernels(AutogradContext* ctx, Saved const& saved,
                                       Tensor const& grad_y, variable_list& results) {
    static NamedOp const norm(OP_NAME("batch_norm_gradient"));
    static NamedOp const unscale(OP_NAME("unscale_columns"));
    static NamedOp const finish(OP_NAME("scale_gradient"));
    // One of both may be wider, as the gradient of a result in fp32 is.
    at::ScalarType const wider = at::promote_types(grad_y.scalar_type(), saved.v.scalar_type());
    Tensor const grad = grad_y.to(wider), v = saved.v.to(wider), &rstd = saved.rstd;
    c10::IValue const gamma = optional(saved.gamma);
    // The gradient of a scale reads these in fp32.
    bool const rounds = !needs(ctx, kScale) && saved.are_rounded_alike(ctx, wider);
    torch::jit::Stack const grads =
        norm.run({grad, v, saved.centre, rstd, gamma, optional(saved.scale), rounds});
    Tensor const grad_z = grads[0].toTensor(), grad_gamma = grads[1].toTensor(),
                 grad_beta = grads[2].toTensor();
    results[kGammaAt] = grad_gamma;
    results[kBetaAt] = grad_beta;
    Tensor const rows = grad_z.to(saved.x_dtype);
    if (needs(ctx, kX)) {
      results[0] = multiply(rows, saved.weight, saved.precision, saved.split);
    }
    if (needs(ctx, kScale)) {
      unscale.run({grad_z, grad, v, saved.centre, rstd, grad_gamma, grad_beta, saved.eps, gamma});
      // Again, as it has been written to.
      Tensor const mixed = grad_z.to(saved.x_dtype);
      results[1] = multiply(mixed.t(), saved.x, saved.precision).contiguous();
      Tensor const of_scale =
          finish.call({results[1], saved.weight, saved.scale, rstd, grad_gamma, saved.eps, gamma});
      results[kScaleAt] = sum_for(saved.scale, of_scale);
      results[1] = needs(ctx, kWeight) ? give_or_add(ctx, results[1], saved.x_dtype) : Tensor();
    } else if (needs(ctx, kWeight)) {
      results[1] = differentiate_weight(ctx, rows, saved.x, saved.precision);
    }
  }
};

// linear_batch_norm_scale_softmax: with n = (z - mean) * rstd one affine map per column,
// v = n * (gamma * scale) + beta * scale, and a softmax behind it.
struct SoftmaxBehind {
  static constexpr char kOp[] = OP_NAME("linear_batch_norm_scale_softmax_train");
  static constexpr bool kReadsResult = true, kMultipliesForScale = false;

  static void differentiate(AutogradContext* ctx, Saved const& saved, Tensor const& grad_y,
                            Tensor const& grad_kept, variable_list& results) {
    Tensor grad_z = grad_kept;
    if (grad_y.defined()) {
      Tensor const grad_v = differentiate_softmax(grad_y, saved.y);
      bool const by_kernels = saved.scale.defined() && has_kernels(grad_v, saved.v, saved.rstd);
      Tensor const through = by_kernels ? differentiate_by_kernels(ctx, saved, grad_v, results)
                                        : differentiate_parts(ctx, saved, grad_v, results);
      grad_z = add_if_defined(through, grad_kept);
    }
    if (needs(ctx, kX)) {
      Tensor const rows = grad_z.to(saved.weight.scalar_type());
      results[0] = multiply(rows, saved.weight, saved.precision, saved.split);
    }
    if (needs(ctx, kWeight)) {
      results[1] = differentiate_weight(ctx, grad_z.to(saved.x_dtype), saved.x, saved.precision);
    }
  }

 private:
  static Tensor differentiate_softmax(Tensor const& grad_y, Tensor const& y) {
    bool const has_kernel = y.is_cuda() && y.scalar_type() != at::kDouble && is_plain(grad_y) &&
                            grad_y.scalar_type() == y.scalar_type();
    if (!has_kernel) return at::_softmax_backward_data(grad_y, y, -1, y.scalar_type());
    static NamedOp const op(OP_NAME("softmax_gradient"));
    return op.call({grad_y, y});
  }

  // The gradient of z; those of scale, gamma and beta go to `results`.
  static Tensor differentiate_by_kernels(AutogradContext* ctx, Saved const& saved,
                                         Tensor const& grad_v, variable_list& results) {
    static NamedOp const op(OP_NAME("batch_norm_scale_gradient"));
    at::ScalarType const wider = at::promote_types(grad_v.scalar_type(), saved.v.scalar_type());
    torch::jit::Stack const grads =
        op.run({grad_v.to(wider), saved.v.to(wider), saved.centre, saved.rstd, saved.scale,
                optional(saved.gamma), optional(saved.beta)});
    results[kGammaAt] = grads[1].toTensor();
    results[kBetaAt] = grads[2].toTensor();
    if (needs(ctx, kScale)) results[kScaleAt] = sum_for(saved.scale, grads[3].toTensor());
    return grads[0].toTensor();
  }

  static Tensor differentiate_parts(AutogradContext* ctx, Saved const& saved, Tensor const& grad_v,
                                    variable_list& results) {
    Tensor const &scale = saved.scale, &gamma = saved.gamma, &rstd = saved.rstd;
    Tensor factor = gamma;
    if (scale.defined()) {
      factor = scale.to(rstd.scalar_type()).expand(rstd.sizes());
      if (gamma.defined()) factor = factor * gamma;
    }
    at::ScalarType const wider = at::promote_types(grad_v.scalar_type(), saved.v.scalar_type());
    bool const rounds = !scale.defined() && saved.are_rounded_alike(ctx, wider);
    NormGradients const norm =
        differentiate_norm(grad_v, saved.v, saved.centre, rstd, factor, saved.eps, rounds);
    if (needs(ctx, kScale)) {
      Tensor columns = gamma.defined() ? norm.gamma * gamma : norm.gamma;
      if (saved.beta.defined()) columns = columns + norm.beta * saved.beta;
      results[kScaleAt] = sum_for(scale, columns);
    }
    results[kGammaAt] = scale_by(scale, norm.gamma);
    results[kBetaAt] = scale_by(scale, norm.beta);
    return norm.z;
  }
};

template <class Tail>
struct Training : public Function<Training<Tail>> {
  static constexpr bool is_traceable = true;

  // y, and v or z less a shift: by its gradients a second backward pass comes back.
  static variable_list forward(AutogradContext* ctx, Tensor const& x, Tensor const& weight,
                               OptionalTensor const& bias, OptionalTensor const& scale,
                               OptionalTensor const& running_mean,
                               OptionalTensor const& running_var,
                               OptionalTensor const& num_batches_tracked,
                               OptionalTensor const& gamma, OptionalTensor const& beta,
                               std::optional<double> momentum, double eps,
                               std::string const& precision, Word const& out, bool shares,
                               OptionalTensor const& kept, OptionalTensor const& main_grad) {
    static NamedOp const op(Tail::kOp);
    static int const keep_z_at = op.index("keep_z"), split_at = op.index("weight_split"),
                     centre_at = op.index("centre"), out_at = op.index("out");
    Tensor const split =
        shares ? make_shared_split(x, weight, precision, /*batch_norm=*/true, kept) : Tensor();
    at::ScalarType const wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Tensor const centre = at::empty({weight.size(0)}, x.options().dtype(wide));
    torch::jit::Stack stack = op.arguments();
    std::vector<c10::IValue> const given = {
        x,     weight, bias,     scale, running_mean, running_var, num_batches_tracked,
        gamma, beta,   momentum, eps,   precision};
    std::copy(given.begin(), given.end(), stack.begin());
    stack[keep_z_at] = true;
    stack[centre_at] = centre;
    if (split.defined()) stack[split_at] = split;
    if (out) stack[out_at] = *out;
    torch::jit::Stack const results = op.run(std::move(stack));
    Tensor const y = results[0].toTensor(), v = results[1].toTensor(), rstd = results[3].toTensor();

    bool const asks_scale = scale.has_value() && scale->requires_grad();
    bool const reads_both = Tail::kMultipliesForScale && asks_scale;
    // The gradient of scale alone reads beta.
    bool const reads_beta = Tail::kReadsResult && asks_scale;
    Tensor const none;
    ctx->save_for_backward({weight.requires_grad() || reads_both ? x : none,
                            x.requires_grad() || reads_both ? weight : none, split,
                            scale.value_or(none), gamma.value_or(none),
                            reads_beta ? beta.value_or(none) : none, Tail::kReadsResult ? y : none,
                            v, rstd, centre});
    keep_main_grad(ctx, main_grad);
    ctx->set_materialize_grads(false);
    ctx->saved_data["precision"] = precision;
    ctx->saved_data["eps"] = eps;
    auto const dtype_of = [](OptionalTensor const& tensor) {
      return tensor ? static_cast<int64_t>(tensor->scalar_type()) : int64_t(-1);
    };
    ctx->saved_data["x_dtype"] = dtype_of(x);
    ctx->saved_data["bias_dtype"] = dtype_of(bias);
    ctx->saved_data["gamma_dtype"] = dtype_of(gamma);
    ctx->saved_data["beta_dtype"] = dtype_of(beta);
    std::vector<int64_t> const places = place_inputs(
        {&bias, &scale, &running_mean, &running_var, &num_batches_tracked, &gamma, &beta}, 2);
    ctx->saved_data["indices"] =
        std::vector<int64_t>{0, 1, places[0], places[1], places[5], places[6]};
    return {y, v};
  }

  static variable_list backward(AutogradContext* ctx, variable_list const& grads) {
    variable_list results(kArguments);
    if (!grads[0].defined() && !grads[1].defined()) return results;
    c10::impl::ExcludeDispatchKeyGuard const no_autocast(c10::autocast_dispatch_keyset);
    Saved const saved(ctx);
    Tail::differentiate(ctx, saved, grads[0], grads[1], results);
    auto const take = [&](Input input, size_t at) {
      return needs(ctx, input) ? results[at] : Tensor();
    };
    std::optional<at::ScalarType> zeros;
    if (needs(ctx, kBias)) zeros = Saved::dtype(ctx, "bias_dtype");
    at::ScalarType const of_scale =
        saved.scale.defined() ? saved.scale.scalar_type() : saved.rstd.scalar_type();
    variable_list const vectors =
        convert_all({take(kGamma, kGammaAt), take(kBeta, kBetaAt), take(kScale, kScaleAt)},
                    {Saved::dtype(ctx, "gamma_dtype"), Saved::dtype(ctx, "beta_dtype"), of_scale},
                    zeros, saved.rstd);
    results[kGammaAt] = vectors[0];
    results[kBetaAt] = vectors[1];
    results[kScaleAt] = vectors[2];
    // The mean takes the bias out of y.
    if (zeros) results[kBiasAt] = vectors[3];
    return results;
  }
};

template <class Tail>
Tensor train(Tensor const& x, Tensor const& weight, OptionalTensor const& bias,
             OptionalTensor const& scale, OptionalTensor const& running_mean,
             OptionalTensor const& running_var, OptionalTensor const& num_batches_tracked,
             OptionalTensor const& gamma, OptionalTensor const& beta,
             std::optional<double> momentum, double eps, std::string precision, Word out,
             bool shares, OptionalTensor const& kept, OptionalTensor const& main_grad) {
  return Training<Tail>::apply(x, weight, bias, scale, running_mean, running_var,
                               num_batches_tracked, gamma, beta, momentum, eps, precision, out,
                               shares, kept, main_grad)[0];
}

template <class Tail>
void define(torch::Library& library) {
  std::string const name = std::string(Tail::kOp).substr(sizeof OP_NAME("") - 1) + "_with_gradient";
  std::string const schema =
      name +
      "(Tensor x, Tensor weight, Tensor? bias, Tensor? scale, Tensor(a!)? running_mean, "
      "Tensor(b!)? running_var, Tensor(c!)? num_batches_tracked, Tensor? gamma, Tensor? beta, "
      "float? momentum, float eps, str precision, str? out, bool shares, Tensor? kept, "
      "Tensor? main_grad) -> Tensor";
  library.def(schema.c_str());
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(train<Tail>)));
}

}  // namespace

void define_linear_batch_norm(torch::Library& library) {
  define<ScaleInFront>(library);
  define<SoftmaxBehind>(library);
}

}  // namespace cutlass_fused
