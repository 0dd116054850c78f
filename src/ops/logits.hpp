// b = epilogue(x @ weight.T) in fp32, for a softmax with a 16-bit result to read.
#pragma once

#include "cutlass_fused/plan/logits_sm90.hpp"
#include "ops/dispatch.hpp"

namespace cutlass_fused {

// False: nothing was launched.
template <class Math, class Epilogue>
bool launch_logits(char const* op, GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                   Device const& device) {
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    if (!prefers_logits_tile<Math>(gemm, device)) return false;
    Status const status =
        run_gemm_logits<Math, Epilogue>(gemm, epilogue, {device, nullptr, current_stream(device)});
    if (status == Status::kNoKernel || status == Status::kNoDescriptor) return false;
    check_status(op, status);
    return true;
  }
  return false;
}

// As run_linear.
template <class Epilogue>
Tensor run_logits(char const* op, Matrices matrices, typename Epilogue::Args const& epilogue,
                  Precision precision) {
  constexpr DataType kType = DataType::kFloat32;
  check_operands(op, matrices, precision);
  int const index = matrices.x.get_device_index();
  torch::stable::accelerator::DeviceGuard const guard(index);
  Device const& device = supported_device(op, index);
  Tensor b = allocate(matrices.x, matrices.y_shape, ScalarType::Float);
  if (matrices.m == 0 || matrices.n == 0) return b;
  if (matrices.type != kType) {
    GemmArgs const gemm = prepare_product(matrices, b, kType);
    bool const launched = matrices.type == DataType::kBFloat16
                              ? launch_logits<Bf16, Epilogue>(op, gemm, epilogue, device)
                              : launch_logits<F16, Epilogue>(op, gemm, epilogue, device);
    if (launched) return b;
  }
  run_product<Epilogue>(op, matrices, epilogue, precision, b, kType, device);
  return b;
}

}  // namespace cutlass_fused
