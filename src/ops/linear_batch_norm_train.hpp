// The product with a batch norm in training behind it: z, its statistics, and y.
#pragma once

#include "ops/allocate.hpp"
#include "ops/batch_norm_on_chip.hpp"
#include "ops/product_statistics.hpp"

namespace cutlass_fused {

using TrainResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // y, z, mean, rstd

// Computes z = (x @ weight.T + bias) * scale and its statistics, and calls
// finish(rows, normalization, behind, y, device), which writes y: of z, or of what has been
// normalized already. z is a tensor of its own only if `keep_z`; else y is computed in its place.
// It is returned less a shift for each column if there is a `centre` (check_centre), which becomes
// the mean of what is returned. `is_last`: y is the normalized z itself; else 16 bits would be
// rounded to once more in front of what follows.
template <class Finish>
TrainResult run_linear_train(char const* op, Matrices matrices, ScaleBias::Args const& product,
                             Precision precision, DataType y_type, BatchNorm const& batch_norm,
                             bool keep_z, float* centre, bool is_last, Finish const& finish) {
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
    if (centre != nullptr) clear_vector(op, centre, matrices.n, device);
    return {y, kept, mean, rstd};
  }
  Tensor const& z = keep_z ? kept : y;
  Matrix const rows = view_rows(z, matrices, y_type);
  GemmArgs const gemm = prepare_product(matrices, z, y_type);
  bool counted = false;
  if (!keep_z) {
    auto const statistics =
        run_product_with_batch_norm(op, matrices, gemm, product, batch_norm, device, y, counted);
    if (statistics) {
      finish(rows, std::optional<Normalization>{}, BehindKernel{}, y, device);
      return {y, kept, std::get<0>(*statistics), std::get<1>(*statistics)};
    }
  }
  // In 16 bits z is stored less shifts, unless somebody wants it as it is.
  bool const as_it_is = keep_z && centre == nullptr, narrow = size_of(y_type) == 2;
  StoredShifts stored{{}, nullptr, centre, nullptr};
  ScaleBias::Args stored_product = product;
  if (narrow && !as_it_is) {
    stored.column = {product.bias, product.scale};
    stored_product.bias = Vector::constant(0.0f);
  }
  if (is_last && !as_it_is) {
    auto const statistics = run_product_with_strips(op, matrices, gemm, stored_product, batch_norm,
                                                    device, y, counted, stored);
    if (statistics) {
      finish(view_rows(y, matrices, y_type), std::optional<Normalization>{}, BehindKernel{}, y,
             device);
      return {y, kept, std::get<0>(*statistics), std::get<1>(*statistics)};
    }
  }
  auto const found = run_product_with_statistics(op, matrices, gemm, stored_product, precision, z,
                                                 device, !narrow || !as_it_is);
  if (!found && (is_last || y_type == DataType::kFloat32)) {
    if (auto const statistics = run_on_chip(op, rows, batch_norm, y, device, counted, stored)) {
      finish(view_rows(y, matrices, y_type), std::optional<Normalization>{}, BehindKernel{}, y,
             device);
      return {y, kept, std::get<0>(*statistics), std::get<1>(*statistics)};
    }
  }
  ComputedStatistics const computed =
      compute_statistics(op, rows, batch_norm, y, device, found, counted, stored);
  finish(rows, std::optional<Normalization>{computed.normalization()}, computed.behind, y, device);
  return {y, kept, computed.mean, computed.rstd};
}

}  // namespace cutlass_fused
