// The product with a batch norm in training behind it: z, its statistics, and room for y.
#pragma once

#include "ops/allocate.hpp"
#include "ops/batch_statistics.hpp"

namespace cutlass_fused {

using TrainResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // y, z, mean, rstd

// Computes z = epilogue(x @ weight.T) and its statistics, and calls finish(z, computed, y, device),
// which writes y. z is a tensor of its own only if `keep_z`; else y is computed in its place.
template <class Epilogue, class Finish>
TrainResult run_linear_train(char const* op, Matrices const& matrices,
                             typename Epilogue::Args const& epilogue, Precision precision,
                             DataType y_type, BatchNorm const& batch_norm, bool keep_z,
                             Finish const& finish) {
  check_operands(op, matrices, precision);
  check_columns(op, matrices);
  int const index = matrices.x.get_device_index();
  torch::stable::accelerator::DeviceGuard const guard(index);
  Device const& device = supported_device(op, index);
  ScalarType const dtype = to_scalar_type(y_type);
  Tensor y = allocate(matrices.x, matrices.y_shape, dtype);
  Tensor kept = allocate(matrices.x, {keep_z ? matrices.m : 0, matrices.n}, dtype);
  if (matrices.m == 0 || matrices.n == 0) {
    auto [mean, rstd] = count_empty_batch(op, matrices, batch_norm, device);
    return {y, kept, mean, rstd};
  }
  Tensor const& z = keep_z ? kept : y;
  run_product<Epilogue>(op, matrices, epilogue, precision, z, y_type, device);
  Matrix const rows = view_rows(z, matrices, y_type);
  ComputedStatistics const computed = compute_statistics(op, rows, batch_norm, y, device);
  finish(rows, computed, y, device);
  return {y, kept, computed.mean, computed.rstd};
}

}  // namespace cutlass_fused
