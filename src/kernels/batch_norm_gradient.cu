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
  return {gradient.rstd,       gradient.gamma,     gradient.beta,      gradient.scale,
          gradient.grad_gamma, gradient.grad_beta, gradient.grad_scale};
}

template <class T, int kLanes>
Status launch_on_chip(BatchNormGradient const& gradient, int64_t rounds, Device const& device,
                      cudaStream_t stream) {
  using OnChip = OnChipGradient;
  static std::atomic<uint64_t> devices{0};
  auto* const kernel = differentiate_batch_norm_on_chip<T, kLanes>;
  int64_t const columns = kLanes * OnChip::kPieceBytes / int64_t(sizeof(T));
  int const bytes = int(OnChip::kept_bytes(rounds));
  // What a longer matrix may have, too: a kernel is opted in once.
  int const most = device.shared_memory - int(sizeof(float)) * OnChip::kThreads * 8;
  if (!opt_in_to_shared_memory(kernel, most, device, devices)) return Status::kCudaError;
  OnChipGradientParams<T> const params{gradient.m,
                                       gradient.n,
                                       static_cast<T const*>(gradient.grad_y),
                                       static_cast<T const*>(gradient.z),
                                       gradient.mean,
                                       static_cast<T*>(gradient.grad_z),
                                       rounds,
                                       finish_of(gradient)};
  KernelLaunch const launch{device, stream, dim3(unsigned(ceil_div(gradient.n, columns))),
                            dim3(kLanes, OnChip::kThreads / kLanes), size_t(bytes)};
  return launch(kernel, params);
}

Status run_on_chip(BatchNormGradient const& gradient, OnChipGradient const& plan,
                   Device const& device, cudaStream_t stream) {
  return for_type(gradient.type, [&](auto type) {
    using T = Storage<type()>;
    auto* const run = plan.lanes == OnChipGradient::kWide
                          ? launch_on_chip<T, OnChipGradient::kWide>
                          : launch_on_chip<T, OnChipGradient::kNarrow>;
    return run(gradient, plan.rounds, device, stream);
  });
}

}  // namespace

Status run_batch_norm_gradient(BatchNormGradient const& gradient, GradientStrips const& strips,
                               Device const& device, cudaStream_t stream) {
  using Block = GradientBlock;
  bool const aligned = has_whole_pieces(gradient);
  OnChipGradient const on_chip =
      aligned ? OnChipGradient::make(gradient.m, gradient.n * size_of(gradient.type), device)
              : OnChipGradient{};
  if (on_chip.lanes > 0) return run_on_chip(gradient, on_chip, device, stream);
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
