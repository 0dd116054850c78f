// The gradient of a scale in front of a batch norm, of every element type.
#include "cutlass_fused/gradients/scale.cuh"

namespace cutlass_fused {

Status run_unscale_columns(UnscaleColumns const& columns, GradientStrips const& strips,
                           Device const& device, cudaStream_t stream) {
  using Block = GradientBlock;
  dim3 const grid(unsigned(ceil_div(columns.n, int64_t(Block::columns(columns.type)))),
                  unsigned(strips.count));
  return for_type(columns.type, [&](auto type) {
    using T = Storage<type()>;
    UnscaleColumnsParams<T> const params{columns.m,
                                         columns.n,
                                         static_cast<T*>(columns.rows),
                                         static_cast<T const*>(columns.grad_v),
                                         columns.rstd,
                                         columns.eps,
                                         strips.rows};
    return KernelLaunch{device, stream, grid, dim3(Block::kLanes, Block::kLines)}(
        unscale_columns<T>, params);
  });
}

Status run_scale_gradient(ScaleGradient const& gradient, Device const& device,
                          cudaStream_t stream) {
  return for_type(gradient.type, [&](auto type) {
    using T = Storage<type()>;
    return KernelLaunch{device, stream, dim3(unsigned(gradient.n)),
                        dim3(ScaleGradientBlock::kThreads)}(scale_gradient<T>, gradient);
  });
}

}  // namespace cutlass_fused
