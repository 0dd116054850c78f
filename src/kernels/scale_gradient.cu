// The gradient of a scale in front of a batch norm, of every element type.
#include "cutlass_fused/gradients/scale.cuh"

#include <algorithm>

namespace cutlass_fused {

Status run_unscale_columns(UnscaleColumns const& columns, Device const& device,
                           cudaStream_t stream) {
  constexpr int64_t kBlocksPerSm = 4, kMostRows = 1 << 20;
  int64_t const panels = ceil_div(columns.n, int64_t(UnscaleColumns::kColumns));
  int64_t const wanted = std::max(kBlocksPerSm * device.sm_count / panels, int64_t(1));
  int64_t const strip = std::min(ceil_div(columns.m, wanted), kMostRows);
  dim3 const grid(unsigned(panels), unsigned(ceil_div(columns.m, strip)));
  return for_type(columns.type, [&](auto type) {
    using T = Storage<type()>;
    UnscaleColumnsParams<T> const params{columns.m,
                                         columns.n,
                                         static_cast<T*>(columns.rows),
                                         static_cast<T const*>(columns.grad_y),
                                         static_cast<T const*>(columns.v),
                                         columns.mean,
                                         columns.rstd,
                                         columns.grad_gamma,
                                         columns.grad_beta,
                                         columns.gamma,
                                         columns.eps,
                                         strip};
    return KernelLaunch{device, stream, grid, dim3(UnscaleColumns::kThreads)}(unscale_columns<T>,
                                                                              params);
  });
}

Status run_scale_gradient(ScaleGradient const& gradient, Device const& device,
                          cudaStream_t stream) {
  using Block = ScaleGradientBlock;
  auto const is_aligned = [&](void const* data) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
           gradient.k * size_of(gradient.type) % 16 == 0;
  };
  bool const aligned = is_aligned(gradient.product) && is_aligned(gradient.weight);
  dim3 const grid(unsigned(ceil_div(gradient.n, int64_t(Block::kRows))));
  return for_type(gradient.type, [&](auto type) {
    using T = Storage<type()>;
    auto* const kernel = aligned ? scale_gradient<T, true> : scale_gradient<T, false>;
    return KernelLaunch{device, stream, grid, dim3(Block::kThreads)}(kernel, gradient);
  });
}

}  // namespace cutlass_fused
