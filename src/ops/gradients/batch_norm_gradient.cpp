// batch_norm_gradient and batch_norm_scale_gradient: the gradients of a batch norm in training,
// with a scale in front of it or behind
#include "cutlass_fused/gradients/batch_norm.hpp"

#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "op_namespace.hpp"
#include "ops/gradients/checks.hpp"

namespace cutlass_fused {
namespace {

// What both ops are given.
struct Operands {
  Tensor x, z, mean, rstd;
  std::optional<Tensor> gamma, beta, scale;
};

struct Gradients {
  Tensor z, gamma, beta;
  std::optional<Tensor> scale;
};

// is_behind: whether the scale stands behind the batch norm. round_vectors: whether the gradients
// of gamma and beta are rounded to the type of x.
Gradients differentiate(char const* op, Operands operands, bool is_behind, bool round_vectors) {
  Tensor &x = operands.x, &z = operands.z;
  check_two_dimensions(op, x, "(M, N)");
  DataType const type = check_rows(op, x).type;
  int64_t const m = x.size(0), n = x.size(1);
  check_like_x(op, "z", z, x);
  float const* const means = check_wide_vector(op, "mean", operands.mean, x, n);
  float const* const rstds = check_wide_vector(op, "rstd", operands.rstd, x, n);
  Vector const gamma = check_any_vector(op, "gamma", operands.gamma, x, n, 1.0f),
               beta = check_any_vector(op, "beta", operands.beta, x, n, 0.0f),
               scale = check_any_vector(op, "scale", operands.scale, x, n, 1.0f, true);
  if (!x.is_contiguous()) x = torch::stable::contiguous(x);
  if (!z.is_contiguous()) z = torch::stable::contiguous(z);

  DeviceScope const scope(op, x);
  Device const& device = scope.device();
  DataType const vectors = round_vectors ? type : DataType::kFloat32;
  auto const make_vector = [&] { return allocate(x, {n}, to_scalar_type(vectors)); };
  Gradients grads{allocate(x, {m, n}, x.scalar_type()), make_vector(), make_vector(), {}};
  if (is_behind) grads.scale = allocate(x, {n}, ScalarType::Float);
  if (m == 0 || n == 0) {
    for (Tensor& sums : {std::ref(grads.gamma), std::ref(grads.beta)}) torch::stable::zero_(sums);
    if (is_behind) torch::stable::zero_(*grads.scale);
    return grads;
  }
  GradientStrips const strips = GradientStrips::make(m, n, type, device);
  Tensor const workspace = allocate(x, {BatchNormGradient::words(n, strips)}, ScalarType::Float);
  auto const floats = [](Tensor const& tensor) {
    return static_cast<float*>(tensor.mutable_data_ptr());
  };
  BatchNormGradient const gradient{type,
                                   m,
                                   n,
                                   x.const_data_ptr(),
                                   z.const_data_ptr(),
                                   means,
                                   rstds,
                                   gamma,
                                   beta,
                                   scale,
                                   grads.z.mutable_data_ptr(),
                                   grads.gamma.mutable_data_ptr(),
                                   grads.beta.mutable_data_ptr(),
                                   is_behind ? floats(*grads.scale) : nullptr,
                                   vectors,
                                   floats(workspace)};
  check_status(op, run_batch_norm_gradient(gradient, strips, device, current_stream(device)));
  return grads;
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_gradient(Tensor x, Tensor z, Tensor mean, Tensor rstd,
                                                       std::optional<Tensor> gamma,
                                                       std::optional<Tensor> scale,
                                                       bool round_vectors) {
  Gradients const grads = differentiate("batch_norm_gradient", {x, z, mean, rstd, gamma, {}, scale},
                                        false, round_vectors);
  return {grads.z, grads.gamma, grads.beta};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_scale_gradient(Tensor x, Tensor z,
                                                                     Tensor mean, Tensor rstd,
                                                                     Tensor scale,
                                                                     std::optional<Tensor> gamma,
                                                                     std::optional<Tensor> beta) {
  Gradients const grads = differentiate("batch_norm_scale_gradient",
                                        {x, z, mean, rstd, gamma, beta, scale}, true, false);
  return {grads.z, grads.gamma, grads.beta, *grads.scale};
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("batch_norm_gradient", TORCH_BOX(&batch_norm_gradient));
  m.impl("batch_norm_scale_gradient", TORCH_BOX(&batch_norm_scale_gradient));
}

}  // namespace
}  // namespace cutlass_fused
