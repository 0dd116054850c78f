#include "switch/norms/differentiate.hpp"

#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

Tensor sum_rows(Tensor const& tensor) { return tensor.sum(at::IntArrayRef{0}); }

// Of ops that PyTorch differentiates: mean and rstd are computed again.
NormGradients compose_gradients(Tensor grad_y, Tensor z, Tensor const& gamma, double eps,
                                at::ScalarType type) {
  c10::Scalar const rows(z.sym_size(0).max(1));  // a symbol, while a backward pass is compiled
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

}  // namespace

bool has_kernels(Tensor const& grad_y, Tensor const& z, Tensor const& rstd) {
  return grad_y.defined() && z.is_cuda() && z.sym_numel() > 0 && rstd.scalar_type() == at::kFloat &&
         is_plain(grad_y);
}

c10::IValue optional(Tensor const& tensor) {
  return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
}

NormGradients differentiate_norm(Tensor grad_y, Tensor z, Tensor const& mean, Tensor const& rstd,
                                 Tensor gamma, double eps, bool round_vectors) {
  at::ScalarType const type = rstd.scalar_type();
  if (is_differentiated(grad_y)) return compose_gradients(grad_y, z, gamma, eps, type);
  if (z.sym_numel() == 0) return {at::zeros_like(z), at::zeros_like(rstd), at::zeros_like(rstd)};
  if (has_kernels(grad_y, z, rstd)) {
    static NamedOp const op(OP_NAME("batch_norm_gradient"));
    at::ScalarType const wider = at::promote_types(grad_y.scalar_type(), z.scalar_type());
    torch::jit::Stack const results = op.run(
        {grad_y.to(wider), z.to(wider), mean, rstd, optional(gamma), c10::IValue(), round_vectors});
    return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
  }
  if (!z.is_cuda() || is_transformed()) {  // which want 16-bit vectors beside 16-bit z
    grad_y = grad_y.to(type);
    z = z.to(type);
  }
  // It reads its vectors as if their stride were 1.
  gamma = gamma.defined() ? gamma.to(type).contiguous() : at::ones_like(rstd);
  auto const [grad_z, grad_gamma, grad_beta] =
      at::native_batch_norm_backward(grad_y.contiguous(), z.contiguous(), gamma, {}, {}, mean, rstd,
                                     /*train=*/true, /*eps=*/0.0, {true, true, true});
  return {grad_z, grad_gamma, grad_beta};
}

std::vector<int64_t> place_inputs(std::initializer_list<OptionalTensor const*> tensors,
                                  int64_t first) {
  std::vector<int64_t> places;
  for (OptionalTensor const* tensor : tensors) {
    places.push_back(tensor->has_value() ? first++ : -1);
  }
  return places;
}

}  // namespace cutlass_fused
