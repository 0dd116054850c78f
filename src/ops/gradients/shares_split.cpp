// shares_split: whether what split_weight makes of a weight (N, K) serves a step of training twice:
// the product with (M, K), and that of the gradient of x, (M, N).
#include "cutlass_fused/plan/make_plan.hpp"
#include "checks/checks.hpp"
#include "checks/device.hpp"
#include "launch/cublas/multiply.hpp"
#include "op_namespace.hpp"

#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

namespace cutlass_fused {
namespace {

Plan plan_of(int64_t m, int64_t n, int64_t k, Rows const& weight, Precision precision,
             Device const& device) {
  MathId const math = choose_math(DataType::kFloat32, precision, k);
  Problem const problem{math, m, n, k, DataType::kFloat32, {k}, weight, {n}};
  Tail const tail{Tail::kEpilogue, names::kScaleLeakyReLU};
  return make_plan(problem, tail, device, {nullptr, nullptr, strike_missing()});
}

bool shares_split(int64_t device, int64_t m, int64_t n, int64_t k, std::string precision,
                  bool batch_norm) {
  constexpr char kOp[] = "shares_split";
  Precision const checked = check_precision(kOp, precision);
  STD_TORCH_CHECK(m >= 0 && n >= 0 && k >= 0, kOp, ": m, n and k must not be negative, got ", m,
                  ", ", n, " and ", k);
  Device const& gpu = supported_device(kOp, static_cast<int>(device));
  if (m == 0 || n == 0 || !splits_for(k) || !splits_for(n)) return false;
  // In front of a batch norm in training a product is always one of split rows.
  if (!batch_norm && !plan_of(m, n, k, {k}, checked, gpu).splits) return false;
  return plan_of(m, k, n, {k, 16, Major::kMn}, checked, gpu).along_n;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("shares_split", TORCH_BOX(&shares_split));
}

}  // namespace
}  // namespace cutlass_fused
