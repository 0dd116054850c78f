// The product by cuBLAS, as PyTorch calls it, in fp32. The epilogue is a kernel of its own behind
// it.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <array>
#include <cstdint>
#include <optional>

#include "cutlass_fused/epilogue/elements/apply.hpp"
#include "checks/checks.hpp"

namespace cutlass_fused {

// A bit for each GPU on which this thread computed a product, and none for those beyond: PyTorch
// creates a cuBLAS handle per thread and GPU at the first product, which a CUDA graph cannot
// capture.
inline thread_local uint64_t gpus_with_cublas = 0;
inline uint64_t gpu_bit(Device const& device) {
  return device.index < 64 ? uint64_t(1) << device.index : 0;
}
inline bool cublas_was_called(Device const& device) {
  return (gpus_with_cublas & gpu_bit(device)) != 0;
}

// x @ weight.T on the device of `like`, or nothing where PyTorch refuses: under some of its
// settings, where memory is short, or where a stride is 2^31 or more.
inline std::optional<Tensor> multiply_by_cublas(GemmArgs const& gemm, DataType type,
                                                Device const& device, Tensor const& like) {
  using torch::stable::detail::from;
  auto const view = [&](void const* data, int64_t rows, int64_t columns, int64_t row_stride,
                        int64_t column_stride) {
    return torch::stable::from_blob(const_cast<void*>(data), {rows, columns},
                                    {row_stride, column_stride}, like.device(),
                                    to_scalar_type(type));
  };
  std::array<StableIValue, 3> stack{from(view(gemm.x, gemm.m, gemm.k, gemm.ldx, 1)),
                                    from(view(gemm.weight, gemm.k, gemm.n, 1, gemm.ldw)),
                                    from(ScalarType::Float)};
  if (torch_call_dispatcher("aten::mm", "dtype", stack.data(), TORCH_ABI_VERSION) !=
      AOTI_TORCH_SUCCESS) {
    return std::nullopt;
  }
  gpus_with_cublas |= gpu_bit(device);
  return torch::stable::detail::to<Tensor>(stack[0]);
}

}  // namespace cutlass_fused
