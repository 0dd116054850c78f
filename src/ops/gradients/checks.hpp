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
  bool is_alike = matrix.dim() == x.dim();
  for (int64_t i = 0; is_alike && i < x.dim(); ++i) is_alike = matrix.size(i) == x.size(i);
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

// Of shape (n,), or also one element, of any of the kernels' dtypes: beside the gradient of a
// result in fp32 those of the model may be narrower. Absent: `value`.
inline Vector check_any_vector(char const* op, char const* name,
                               std::optional<Tensor> const& vector, Tensor const& x, int64_t n,
                               float value, bool may_be_one = false) {
  if (!vector) return Vector::constant(value);
  check_device(op, name, *vector, x);
  std::optional<DataType> type;
  for (DataType const each : kDataTypes) {
    if (to_scalar_type(each) == vector->scalar_type()) type = each;
  }
  STD_TORCH_CHECK(type.has_value(), op, ": ", name, " must be float16, bfloat16 or float32, got ",
                  dtype_string(vector->scalar_type()));
  bool const is_one = may_be_one && vector->numel() == 1 && vector->dim() <= 1;
  STD_TORCH_CHECK(is_one || (vector->dim() == 1 && vector->size(0) == n), op, ": ", name,
                  " must have ", may_be_one ? "one element or " : "", "shape (", n,
                  ",), got shape ", shape_string(*vector));
  return {vector->const_data_ptr(), is_one ? 0 : vector->stride(0), *type, 0.0f};
}

// What is written in its place.
inline void check_contiguous(char const* op, Tensor const& x) {
  STD_TORCH_CHECK(x.is_contiguous(), op,
                  ": x must be contiguous, as it is written to, got strides ", strides_string(x));
}

}  // namespace cutlass_fused
