// From a dtype to the kernels that stand alone, and what their ops share.
#pragma once

#include <type_traits>

#include "cutlass_fused/softmax/row_softmax.hpp"
#include "checks/checks.hpp"
#include "checks/status.hpp"

namespace cutlass_fused {

// Throws where a row is too wide for the kernels, which count its columns in 32 bits.
inline void check_columns(char const* op, Matrices const& rows) {
  STD_TORCH_CHECK(rows.n <= int64_t(1) << 30, op, ": a row must have at most 2^30 elements, got ",
                  rows.n);
}

inline Matrix view_rows(Matrices const& rows) {
  return {rows.m, rows.n, rows.x.const_data_ptr(), rows.ldx, rows.type};
}

// A contiguous tensor, as y and z are.
inline Matrix view_rows(Tensor const& tensor, Matrices const& matrices, DataType type) {
  return {matrices.m, matrices.n, tensor.const_data_ptr(), matrices.n, type};
}

// softmax(x * scale), with one scale for all columns.
inline void run_softmax(char const* op, Matrix const& x, Vector const& scale, Tensor const& y,
                        DataType y_type, Device const& device) {
  check_status(op, for_type(x.type, [&](auto type) {
                 return run_row_softmax<type()>(x, scale, y.mutable_data_ptr(), y_type, device,
                                                current_stream(device));
               }));
}

// `scratch` is of x's size and type: x itself, or y.
inline void run_normalized_softmax(char const* op, Matrix const& x, ScaledNormalization const& map,
                                   Tensor const& scratch, Tensor const& y, DataType y_type,
                                   BehindKernel behind, Device const& device) {
  check_status(op, for_type(x.type, [&](auto type) {
                 return run_normalized_row_softmax<type()>(x, map, scratch.mutable_data_ptr(),
                                                           y.mutable_data_ptr(), y_type, behind,
                                                           device, current_stream(device));
               }));
}

// softmax(x * scale), with one scale or one for each column; as above.
inline void run_scaled_softmax(char const* op, Matrix const& x, Vector const& scale,
                               Tensor const& scratch, Tensor const& y, DataType y_type,
                               Device const& device) {
  if (scale.data == nullptr || scale.stride == 0) {
    return run_softmax(op, x, scale, y, y_type, device);
  }
  ScaledNormalization map;
  map.normalization.a = Vector::constant(1.0f);
  map.scale = scale;
  run_normalized_softmax(op, x, map, scratch, y, y_type, BehindKernel{}, device);
}

}  // namespace cutlass_fused
