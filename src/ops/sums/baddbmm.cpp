// baddbmm, baddbmm_out: y[b] = alpha * x[b] @ weight[b].T + beta * c[b]
#include <torch/csrc/stable/ops.h>

#include "launch/as_they_lie/batched_product.hpp"
#include "checks/status.hpp"
#include "op_namespace.hpp"
#include "ops/sums/added.hpp"

namespace cutlass_fused {
namespace {

// The shape of the result.
std::vector<int64_t> check_baddbmm(char const* op, Tensor const& c, Tensor const& x,
                                   Tensor const& weight) {
  check_batches(op, x, weight);
  check_floats(op, c, x, weight);
  std::vector<int64_t> const shape{x.size(0), x.size(1), weight.size(1)};
  check_broadcast(op, c, shape);
  return shape;
}

// Into y, which may be c.
void multiply_and_add(char const* op, Tensor const& c, Tensor const& x, Tensor const& weight,
                      double beta, double alpha, Precision precision, Tensor const& y,
                      std::vector<int64_t> const& shape) {
  check_factors(op, beta, alpha);
  if (y.numel() == 0) return;
  Added const added = make_added(c, y, shape, alpha, beta);
  bool const adds = beta != 0.0 || alpha != 1.0;
  run_batched_into(op, x, weight, y, DataType::kFloat32, precision, adds ? &added.args : nullptr,
                   added.is_y);
}

Tensor baddbmm(Tensor c, Tensor x, Tensor weight, double beta, double alpha,
               std::string precision) {
  constexpr char kOp[] = "baddbmm";
  std::vector<int64_t> const shape = check_baddbmm(kOp, c, x, weight);
  Precision const checked = check_precision(kOp, precision);
  DeviceScope const scope(kOp, x);
  Tensor y = allocate(x, shape, ScalarType::Float);
  multiply_and_add(kOp, c, x, weight, beta, alpha, checked, y, shape);
  return y;
}

void baddbmm_out(Tensor y, Tensor c, Tensor x, Tensor weight, double beta, double alpha,
                 std::string precision) {
  constexpr char kOp[] = "baddbmm_out";
  std::vector<int64_t> const shape = check_baddbmm(kOp, c, x, weight);
  Precision const checked = check_precision(kOp, precision);
  check_y(kOp, y, x, shape);
  DeviceScope const scope(kOp, x);
  multiply_and_add(kOp, c, x, weight, beta, alpha, checked, y, shape);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("baddbmm", TORCH_BOX(&baddbmm));
  m.impl("baddbmm_out", TORCH_BOX(&baddbmm_out));
}

}  // namespace
}  // namespace cutlass_fused
