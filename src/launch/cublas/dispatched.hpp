// The product of 16-bit matrices by cuBLAS, as PyTorch calls it, in fp32. The epilogue is a kernel
// of its own behind it.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <array>
#include <optional>

#include "checks/checks.hpp"
#include "launch/cublas/handles.hpp"

namespace cutlass_fused {

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
  remember_cublas(device);
  return torch::stable::detail::to<Tensor>(stack[0]);
}

}  // namespace cutlass_fused
