// The gradient of LeakyReLU, of every element type.
#include "cutlass_fused/gradients/leaky_relu.cuh"

namespace cutlass_fused {

Status run_leaky_relu_gradient(LeakyReLUGradient const& gradient, GradientStrips const& strips,
                               Device const& device, cudaStream_t stream) {
  using Block = GradientBlock;
  int const width = Block::width(gradient.type);
  auto const begins_at = [](void const* data, int bytes) {
    return reinterpret_cast<uintptr_t>(data) % unsigned(bytes) == 0;
  };
  bool const aligned = gradient.n % width == 0 && begins_at(gradient.grad_y, 16) &&
                       begins_at(gradient.grad_z, 16) && begins_at(gradient.positive, width);
  dim3 const grid(unsigned(ceil_div(gradient.n, int64_t(Block::columns(gradient.type)))),
                  unsigned(strips.count));
  dim3 const block(Block::kLanes, Block::kLines);
  Status const status = for_type(gradient.type, [&](auto type) {
    using T = Storage<type()>;
    LeakyReLUGradientParams<T> const params{gradient.m,
                                            gradient.n,
                                            static_cast<T const*>(gradient.grad_y),
                                            gradient.positive,
                                            static_cast<T*>(gradient.grad_z),
                                            gradient.strip_sums,
                                            gradient.factor,
                                            gradient.negative_factor,
                                            strips.rows};
    auto* const kernel = aligned ? leaky_relu_gradient<T, true> : leaky_relu_gradient<T, false>;
    return KernelLaunch{device, stream, grid, block}(kernel, params);
  });
  if (status != Status::kSuccess) return status;
  float const* const of_strips = gradient.strip_sums;
  dim3 const columns(unsigned(ceil_div(gradient.n, int64_t(Block::kLanes))));
  return KernelLaunch{device, stream, columns, block}(join_column_sums, of_strips, gradient.sums,
                                                      gradient.n, int(strips.count));
}

}  // namespace cutlass_fused
