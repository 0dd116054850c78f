#include "launch/fp32/mixed_product.hpp"

#include "cutlass_fused/epilogue/bias.hpp"
#include "cutlass_fused/gemm/mixed/widen_rows.hpp"
#include "checks/status.hpp"
#include "launch/allocate.hpp"

namespace cutlass_fused {
namespace {

// x as a copy in fp32.
void widen(char const* op, Matrices& matrices, Device const& device) {
  copy_scattered_rows(matrices, /*x=*/true, /*weight=*/false);
  Tensor const& x = matrices.x;
  int64_t const pitch = pitch_of_widened(matrices.k);
  Tensor const wide = allocate(x, {matrices.m, pitch}, ScalarType::Float);
  Matrix const from{matrices.m, matrices.k, x.const_data_ptr(), matrices.ldx, matrices.type};
  check_status(op, run_widen_rows(from, static_cast<float*>(wide.mutable_data_ptr()), device,
                                  current_stream(device)));
  matrices.x = wide;
  matrices.ldx = pitch;
  matrices.type = DataType::kFloat32;
  matrices.is_mixed = false;
}

// y = z rounded: what follows a product changes nothing without a bias and with a slope of 1.
void round_to(char const* op, Tensor const& z, int64_t m, int64_t n, Tensor const& y,
              DataType y_type, Device const& device) {
  ScaleLeakyReLU::Args const nothing = bias_alone(Vector::constant(0.0f));
  GemmArgs gemm{};
  gemm.m = m;
  gemm.n = gemm.ldy = n;
  gemm.y = y.mutable_data_ptr();
  gemm.y_type = y_type;
  check_status(op, find_epilogue(EpilogueId{ScaleLeakyReLU::kName})
                       ->apply(gemm, static_cast<float const*>(z.const_data_ptr()), &nothing,
                               device, current_stream(device)));
}

}  // namespace

void run_mixed_linear_into(char const* op, Matrices matrices, EpilogueCall const& epilogue,
                           Precision precision, Tensor const& y, DataType y_type, Tail::Kind kind,
                           Device const& device) {
  int64_t const m = matrices.m, n = matrices.n;
  widen(op, matrices, device);
  // Kernels of fp32 matrices write fp32.
  bool const is_wide = y_type == DataType::kFloat32;
  Tensor const z = is_wide ? y : allocate(y, {m, n}, ScalarType::Float);
  run_linear_into(op, std::move(matrices), epilogue, precision, z, DataType::kFloat32, kind,
                  device);
  if (!is_wide) round_to(op, z, m, n, y, y_type, device);
}

}  // namespace cutlass_fused
