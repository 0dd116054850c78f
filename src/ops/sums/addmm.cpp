// addmm, addmm_out: y = alpha * x @ weight.T + beta * c
#include <torch/csrc/stable/ops.h>

#include "cutlass_fused/epilogue/bias.hpp"
#include "launch/product.hpp"
#include "checks/status.hpp"
#include "op_namespace.hpp"
#include "ops/sums/added.hpp"

namespace cutlass_fused {
namespace {

Matrices check_addmm(char const* op, Tensor const& c, Tensor const& x, Tensor const& weight,
                     Precision precision) {
  check_two_dimensions(op, x, "(M, K)");
  Matrices const matrices = check_matrices(op, x, weight);
  check_floats(op, c, x, weight);
  check_broadcast(op, c, matrices.y_shape);
  check_operands(op, matrices, precision);
  return matrices;
}

// Into y, which may be c.
void multiply_and_add(char const* op, Matrices matrices, Tensor const& c, double beta, double alpha,
                      Precision precision, Tensor const& y) {
  check_factors(op, beta, alpha);
  if (matrices.m == 0 || matrices.n == 0) return;
  DeviceScope const scope(op, matrices.x);
  // Where alpha is 0, neither matrix is read: the sum of no products is 0.
  if (alpha == 0.0) matrices.k = 0;
  Added const added = make_added(c, y, matrices.y_shape, alpha, beta);
  ScaleLeakyReLU::Args scaled = bias_alone(Vector::constant(0.0f));
  scaled.scale.multiplier = float(alpha);
  EpilogueCall call = call_epilogue<AddScaled>(added.args);
  call.reads_y = added.is_y;
  if (beta == 0.0) {
    call = call_epilogue<ScaleLeakyReLU>(scaled);
    call.is_bare = alpha == 1.0;
  }
  run_linear_into(op, std::move(matrices), call, precision, y, DataType::kFloat32, Tail::kEpilogue,
                  scope.device());
}

Tensor addmm(Tensor c, Tensor x, Tensor weight, double beta, double alpha, std::string precision) {
  constexpr char kOp[] = "addmm";
  Precision const checked = check_precision(kOp, precision);
  Matrices const matrices = check_addmm(kOp, c, x, weight, checked);
  DeviceScope const scope(kOp, x);
  Tensor y = allocate(x, matrices.y_shape, ScalarType::Float);
  multiply_and_add(kOp, matrices, c, beta, alpha, checked, y);
  return y;
}

void addmm_out(Tensor y, Tensor c, Tensor x, Tensor weight, double beta, double alpha,
               std::string precision) {
  constexpr char kOp[] = "addmm_out";
  Precision const checked = check_precision(kOp, precision);
  Matrices const matrices = check_addmm(kOp, c, x, weight, checked);
  check_y(kOp, y, x, matrices.y_shape);
  multiply_and_add(kOp, matrices, c, beta, alpha, checked, y);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("addmm", TORCH_BOX(&addmm));
  m.impl("addmm_out", TORCH_BOX(&addmm_out));
}

}  // namespace
}  // namespace cutlass_fused
