// From dtype, precision and GPU to a kernel: the one place that names Math rows and architectures.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "cutlass_fused/epilogue/on_sm90.hpp"
#include "cutlass_fused/gemm.hpp"
#include "cutlass_fused/gemm/choose_kernel.hpp"
#include "ops/allocate.hpp"
#include "ops/checks.hpp"
#include "ops/device.hpp"
#include "ops/recorded_products.hpp"

namespace cutlass_fused {

inline void check_status(char const* op, Status status) {
  switch (status) {
    case Status::kSuccess:
      return;
    case Status::kUnknownTile:
      STD_TORCH_CHECK(
          false, op, ": the forced tile must be one that this element type and ",
          "precision have, and that can read these operands and write y; see tiles_sm80 ",
          "and tiles_sm90 in build_info()");
    case Status::kNoKernel:
      STD_TORCH_CHECK(false, op, ": x and weight must be aligned to their elements, and the GPU ",
                      "must have 99 KiB of shared memory per block");
    case Status::kNoDescriptor:
      STD_TORCH_CHECK(false, op,
                      ": no TMA descriptor could be made of x, weight or y: CUDA error: ",
                      cudaGetErrorString(cudaGetLastError()));
    default:
      STD_TORCH_CHECK(false, op, ": CUDA error: ", cudaGetErrorString(cudaGetLastError()),
                      " (compiled for ", compiled_architectures(), ")");
  }
}

inline cudaStream_t current_stream(Device const& device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device.index, &stream));
  return static_cast<cudaStream_t>(stream);
}

inline bool is_capturing(Device const& device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(current_stream(device), &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // the default stream may not be asked while another one is captured
  return true;
}

template <class Arch, class Math, class Epilogue>
void launch(char const* op, GemmArgs const& gemm, Choice const& choice,
            typename Epilogue::Args const& epilogue, Device const& device, Tensor const& x) {
  // The workspace comes from PyTorch's allocator on each call, so that streams and graphs never
  // share one; it may be freed while the kernel runs, as the allocator reuses it in stream order.
  std::optional<Tensor> workspace;
  size_t const bytes = workspace_size<Arch, Math, Epilogue>(gemm, choice, device);
  if (bytes > 0) workspace = allocate(x, {int64_t(bytes)}, ScalarType::Byte);

  check_status(op, run_gemm<Arch, Math, Epilogue>(
                       gemm, choice, epilogue,
                       {device, workspace ? workspace->mutable_data_ptr() : nullptr,
                        current_stream(device)}));
}

// By the newest kernels that serve the GPU and the operands, unless another was found to be faster.
template <class Math, class Epilogue>
void launch_newest(char const* op, GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                   Precision precision, Device const& device, Tensor const& x) {
  Kernel const kernel = choose_kernel<Math, CUTLASS_FUSED_SM90>(gemm, device);
  if (RecordedProducts::enabled() && !is_capturing(device)) {
    record_product<Math>(kernel, gemm, precision, device);
  }
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    if (kernel.sm90) {
      using Serving = OnSm90<Epilogue>;
      return launch<Sm90, Math, typename Serving::type>(op, gemm, kernel.choice,
                                                        Serving::convert(epilogue), device, x);
    }
  }
  launch<Sm80, Math, Epilogue>(op, gemm, kernel.choice, epilogue, device, x);
}

// Throws where the product is too large for the kernels.
inline void check_sizes(char const* op, Matrices const& matrices) {
  STD_TORCH_CHECK(fits_kernels(matrices.m, matrices.n, matrices.k), op,
                  ": M, N, K and the number of output tiles must each be below 2^31, got M=",
                  matrices.m, " N=", matrices.n, " K=", matrices.k);
}

// y = epilogue(x @ weight.T), into y: contiguous and not empty. x's device must be the current one.
template <class Epilogue>
void run_product(char const* op, Matrices matrices, typename Epilogue::Args const& epilogue,
                 Precision precision, Tensor const& y, DataType y_type, Device const& device) {
  copy_scattered_rows(matrices);
  GemmArgs const gemm{matrices.m,   matrices.n,
                      matrices.k,   matrices.x.const_data_ptr(),
                      matrices.ldx, matrices.weight.const_data_ptr(),
                      matrices.ldw, y.mutable_data_ptr(),
                      matrices.n,   y_type};
  switch (matrices.type) {
    case DataType::kFloat16:
      return launch_newest<F16, Epilogue>(op, gemm, epilogue, precision, device, y);
    case DataType::kBFloat16:
      return launch_newest<Bf16, Epilogue>(op, gemm, epilogue, precision, device, y);
    default:
      if (precision == Precision::kTf32) {
        return launch_newest<Tf32, Epilogue>(op, gemm, epilogue, precision, device, y);
      }
      return launch_newest<Tf32x3, Epilogue>(op, gemm, epilogue, precision, device, y);
  }
}

// y = epilogue(x @ weight.T), a new contiguous tensor.
template <class Epilogue>
Tensor run_linear(char const* op, Matrices const& matrices, typename Epilogue::Args const& epilogue,
                  Precision precision, DataType y_type) {
  check_sizes(op, matrices);
  int const index = matrices.x.get_device_index();
  torch::stable::accelerator::DeviceGuard const guard(index);
  Device const& device = supported_device(op, index);
  Tensor y = allocate(matrices.x, matrices.y_shape, to_scalar_type(y_type));
  if (matrices.m == 0 || matrices.n == 0) return y;
  run_product<Epilogue>(op, matrices, epilogue, precision, y, y_type, device);
  return y;
}

}  // namespace cutlass_fused
