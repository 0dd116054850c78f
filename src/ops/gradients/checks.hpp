// What the ops of backward passes check.
#pragma once

#include "checks/checks.hpp"

namespace cutlass_fused {

// Another matrix: of the shape, dtype and device of x.
inline void check_like_x(char const* op, char const* name, Tensor const& matrix, Tensor const& x) {
  check_device(op, name, matrix, x);
  STD_TORCH_CHECK(matrix.scalar_type() == x.scalar_type(), op, ": ", name,
                  " must have the dtype of x, ", dtype_string(x.scalar_type()), ", got ",
                  dtype_string(matrix.scalar_type()));
  bool const is_alike =
      matrix.dim() == 2 && matrix.size(0) == x.size(0) && matrix.size(1) == x.size(1);
  STD_TORCH_CHECK(is_alike, op, ": ", name, " must have the shape of x, ", shape_string(x),
                  ", got shape ", shape_string(matrix));
}

// float32, of shape (n,). Returns its data, of a contiguous copy where it is not.
inline float const* check_wide_vector(char const* op, char const* name, Tensor& vector,
                                      Tensor const& x, int64_t n) {
  check_device(op, name, vector, x);
  STD_TORCH_CHECK(vector.scalar_type() == ScalarType::Float, op, ": ", name,
                  " must be float32, got ", dtype_string(vector.scalar_type()));
  STD_TORCH_CHECK(vector.dim() == 1 && vector.size(0) == n, op, ": ", name, " must have shape (", n,
                  ",), got shape ", shape_string(vector));
  if (!vector.is_contiguous()) vector = torch::stable::contiguous(vector);
  return static_cast<float const*>(vector.const_data_ptr());
}

// What is written in its place.
inline void check_contiguous(char const* op, Tensor const& x) {
  STD_TORCH_CHECK(x.is_contiguous(), op,
                  ": x must be contiguous, as it is written to, got strides ", strides_string(x));
}

}  // namespace cutlass_fused
