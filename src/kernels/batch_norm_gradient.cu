// The gradients of a batch norm, of every element type.
#include "cutlass_fused/gradients/batch_norm.cuh"

namespace cutlass_fused {
namespace {

// Whether rows of every matrix begin at multiples of 16 bytes.
bool has_whole_pieces(BatchNormGradient const& gradient) {
  for (void const* data :
       {gradient.grad_y, gradient.z, static_cast<void const*>(gradient.grad_z)}) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  }
  return gradient.n % GradientBlock::width(gradient.type) == 0;
}

}  // namespace

Status run_batch_norm_gradient(BatchNormGradient const& gradient, GradientStrips const& strips,
                               Device const& device, cudaStream_t stream) {
  using Block = GradientBlock;
  int64_t const n = gradient.n;
  float* const strip_products = gradient.workspace + strips.count * n;
  float* const of_grad = strip_products + strips.count * n;
  float *const of_z = of_grad + n, *const constant = of_z + n;
  dim3 const block(Block::kLanes, Block::kLines);
  dim3 const grid(unsigned(ceil_div(n, int64_t(Block::columns(gradient.type)))),
                  unsigned(strips.count));
  dim3 const columns(unsigned(ceil_div(n, int64_t(Block::kLanes))));
  JoinBatchNormGradientParams const join{gradient.m,
                                         n,
                                         int(strips.count),
                                         gradient.workspace,
                                         strip_products,
                                         gradient.rstd,
                                         gradient.gamma,
                                         gradient.beta,
                                         gradient.scale,
                                         gradient.grad_gamma,
                                         gradient.grad_beta,
                                         gradient.grad_scale,
                                         of_grad,
                                         of_z,
                                         constant};
  return for_type(gradient.type, [&](auto type) {
    using T = Storage<type()>;
    BatchNormGradientParams<T> const params{gradient.m,
                                            n,
                                            static_cast<T const*>(gradient.grad_y),
                                            static_cast<T const*>(gradient.z),
                                            gradient.mean,
                                            static_cast<T*>(gradient.grad_z),
                                            gradient.workspace,
                                            strip_products,
                                            of_grad,
                                            of_z,
                                            constant,
                                            strips.rows};
    bool const aligned = has_whole_pieces(gradient);
    auto* const add_up =
        aligned ? add_up_batch_norm_gradient<T, true> : add_up_batch_norm_gradient<T, false>;
    auto* const apply =
        aligned ? apply_batch_norm_gradient<T, true> : apply_batch_norm_gradient<T, false>;
    KernelLaunch const launch{device, stream, grid, block};
    KernelLaunch const launch_join{device, stream, columns, block};
    Status status = launch(add_up, params);
    if (status == Status::kSuccess) status = launch_join(join_batch_norm_gradient, join);
    return status == Status::kSuccess ? launch(apply, params) : status;
  });
}

}  // namespace cutlass_fused
