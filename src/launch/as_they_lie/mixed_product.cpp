#include "launch/as_they_lie/mixed_product.hpp"

#include <torch/csrc/stable/ops.h>

#include "cutlass_fused/common/memo.hpp"
#include "cutlass_fused/gemm/mixed/choose.hpp"
#include "cutlass_fused/plan/plan_key.hpp"
#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "launch/as_they_lie/tf32x3.hpp"
#include "launch/log_plan.hpp"

namespace cutlass_fused {
namespace {

// What is multiplied, as it lies. A weight whose lines are scattered is copied first, as is x.
Product make_mixed_product(char const* op, Matrices& matrices, Precision precision, Tensor const& y,
                           DataType y_type, Device const& device) {
  bool const only_split = stands_for_split(matrices);
  Major const major = only_split ? Major::kK : find_major(matrices.weight, matrices.ldw);
  copy_scattered_rows(matrices, /*x=*/true, major == Major::kK && !only_split);
  Tensor const &x = matrices.x, &weight = matrices.weight;
  GemmArgs const gemm{matrices.m,
                      matrices.n,
                      matrices.k,
                      x.const_data_ptr(),
                      matrices.ldx,
                      only_split ? nullptr : weight.const_data_ptr(),
                      major == Major::kK ? matrices.ldw : weight.stride(1),
                      y.mutable_data_ptr(),
                      matrices.n,
                      y_type,
                      Major::kK,
                      major};
  Problem problem = make_problem(choose_math(DataType::kFloat32, precision, matrices.k), gemm);
  if (only_split) problem.weight_split = WeightSplit::kAlone;
  return {op, precision, matrices.weight_split, gemm, problem, device, y};
}

// The same arguments give the same plan, which is kept.
ProductPlan const& find_mixed_plan(Product const& product, Tail const& tail) {
  static thread_local Memo<ProductPlan, PlanKey> memo;
  Overrides const overrides{forced_tile.load(std::memory_order_acquire), nullptr, {}};
  PlanKey const key = make_plan_key(product.problem, tail, product.device, overrides);
  return *memo.find(key, [&](ProductPlan& plan) {
    plan = choose_mixed(product.problem, tail, product.device, overrides.forced);
    return true;
  });
}

// y by a kernel that reads both matrices as they lie. False: x is to be widened.
bool multiply_as_they_lie(Matrices& matrices, Product const& product, Tail const& tail,
                          EpilogueCall const& epilogue) {
  Plan plan;
  plan.product = find_mixed_plan(product, tail);
  RunMixed const run = find_mixed(epilogue.id);
  if (plan.product.by != ProductBy::kTf32x3 || run == nullptr) return false;
  log_plan(product, plan, "mixed");
  FloatProduct const operands = make_float_product(product.gemm);
  launch_in_shares(product.op, operands, plan.product, product.device, product.like,
                   [&](SharesTf32x3 const& shares, void* workspace) {
                     return run(operands, matrices.type, plan.product.tile, shares, workspace,
                                epilogue.args, epilogue.is_bare, product.device,
                                current_stream(product.device));
                   });
  return true;
}

// x as a copy in fp32, by PyTorch.
void widen(Matrices& matrices) {
  int64_t const pitch = pitch_of_widened(matrices.k);
  auto const sizes = matrices.x.sizes();
  std::vector<int64_t> shape(sizes.begin(), sizes.end());
  shape.back() = pitch;
  Tensor const padded = allocate(matrices.x, shape, ScalarType::Float);
  Tensor wide = padded;
  if (pitch != matrices.k) wide = torch::stable::narrow(wide, -1, 0, matrices.k);
  torch::stable::copy_(wide, matrices.x);
  matrices.x = wide;
  matrices.ldx = pitch;
  matrices.type = DataType::kFloat32;
  matrices.is_mixed = false;
}

}  // namespace

void run_mixed_linear_into(char const* op, Matrices matrices, EpilogueCall const& epilogue,
                           Precision precision, Tensor const& y, DataType y_type, Tail::Kind kind,
                           Device const& device) {
  Product const product = make_mixed_product(op, matrices, precision, y, y_type, device);
  Tail const tail{kind, epilogue.id, epilogue.is_bare};
  if (multiply_as_they_lie(matrices, product, tail, epilogue)) return;
  widen(matrices);
  // Kernels of fp32 matrices write fp32.
  bool const is_wide = y_type == DataType::kFloat32;
  auto const sizes = y.sizes();
  Tensor const z =
      is_wide ? y
              : allocate(y, std::vector<int64_t>(sizes.begin(), sizes.end()), ScalarType::Float);
  run_linear_into(op, std::move(matrices), epilogue, precision, z, DataType::kFloat32, kind,
                  device);
  if (!is_wide) {
    Tensor rounded = y;
    torch::stable::copy_(rounded, z);
  }
}

}  // namespace cutlass_fused
