// The gradients of a batch norm, of every element type.
#include "cutlass_fused/gemm/opt_in.cuh"
#include "cutlass_fused/gradients/batch_norm_on_chip.cuh"

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

FinishColumnParams finish_of(BatchNormGradient const& gradient) {
  return {gradient.rstd,       gradient.gamma,     gradient.beta,       gradient.scale,
          gradient.grad_gamma, gradient.grad_beta, gradient.grad_scale, gradient.vectors};
}

template <class T, int kLanes>
Status launch_on_chip(BatchNormGradient const& gradient, OnChipGradient const& plan,
                      Device const& device, cudaStream_t stream) {
  using Block = OnChipGradientBlock<T, kLanes>;
  static std::atomic<uint64_t> devices{0};
  auto* const kernel = differentiate_batch_norm_on_chip<T, kLanes>;
  // What a longer matrix may have, too: a kernel is opted in once.
  int const most = device.shared_memory - int(sizeof(OnChipGradientShared<Block>));
  if (!opt_in_to_shared_memory(kernel, most, device, devices)) return Status::kCudaError;
  OnChipGradientParams<T> const params{gradient.m,
                                       gradient.n,
                                       static_cast<T const*>(gradient.grad_y),
                                       static_cast<T const*>(gradient.z),
                                       gradient.mean,
                                       static_cast<T*>(gradient.grad_z),
                                       plan.rows,
                                       finish_of(gradient)};
  int64_t const groups = ceil_div(gradient.n, int64_t(Block::kColumns));
  KernelLaunch const launch{device, stream, dim3(unsigned(groups * plan.blocks)),
                            dim3(Block::kThreads), size_t(plan.kept_bytes())};
  return launch_together(launch, plan.blocks, kernel, params);
}

// kNoKernel: another one serves.
Status run_on_chip(BatchNormGradient const& gradient, Device const& device, cudaStream_t stream) {
  OnChipGradient const plan =
      OnChipGradient::make(gradient.m, gradient.n * size_of(gradient.type), device);
  if (plan.lanes == 0) return Status::kNoKernel;
  return for_type(gradient.type, [&](auto type) {
    using T = Storage<type()>;
    auto* const run = plan.lanes == OnChipGradient::kWide
                          ? launch_on_chip<T, OnChipGradient::kWide>
                          : launch_on_chip<T, OnChipGradient::kNarrow>;
    return run(gradient, plan, device, stream);
  });
}

}  // namespace

Status run_batch_norm_gradient(BatchNormGradient const& gradient, GradientStrips const& strips,
                               Device const& device, cudaStream_t stream) {
  using Block = GradientBlock;
  bool const aligned = has_whole_pieces(gradient);
  if (aligned) {
    Status const status = run_on_chip(gradient, device, stream);
    if (status != Status::kNoKernel) return status;
  }
  int64_t const n = gradient.n;
  float* const strip_products = gradient.workspace + strips.count * n;
  float* const of_grad = strip_products + strips.count * n;
  float *const of_z = of_grad + n, *const constant = of_z + n;
  dim3 const block(Block::kLanes, Block::kLines);
  dim3 const grid(unsigned(ceil_div(n, int64_t(Block::columns(gradient.type)))),
                  unsigned(strips.count));
  dim3 const columns(unsigned(ceil_div(n, int64_t(Block::kLanes))));
  JoinBatchNormGradientParams const join{
      gradient.m, n,    int(strips.count), gradient.workspace, strip_products, finish_of(gradient),
      of_grad,    of_z, constant};
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
