#include "launch/as_they_lie/batched_product.hpp"

#include <torch/csrc/stable/ops.h>

#include "cutlass_fused/common/memo.hpp"
#include "cutlass_fused/gemm/compiled.hpp"
#include "cutlass_fused/plan/choose_fp32.hpp"
#include "cutlass_fused/plan/plan_key.hpp"
#include "cutlass_fused/plan/tuned_tiles.hpp"
#include "launch/cublas/multiply.hpp"
#include "launch/log_plan.hpp"
#include "launch/as_they_lie/tf32x3.hpp"

namespace cutlass_fused {
namespace {

// The elements of each matrix lie side by side along K, or along its rows, without overlap; else
// the batch is to be copied.
bool find_operand(Tensor const& batch, CublasOperand& operand) {
  int64_t const rows = batch.size(1), k = batch.size(2);
  int64_t const row_stride = batch.stride(1), k_stride = batch.stride(2);
  operand.data = batch.const_data_ptr();
  operand.batch_stride = batch.size(0) > 1 ? batch.stride(0) : 0;
  bool const along_k = (k_stride == 1 || k == 1) && (row_stride >= k || rows == 1);
  bool const along_rows = (row_stride == 1 || rows == 1) && (k_stride >= rows || k == 1);
  operand.major = along_k ? Major::kK : Major::kMn;
  operand.ld = along_k ? std::max(row_stride, k) : std::max(k_stride, rows);
  return along_k || along_rows;
}

Tensor as_operand(Tensor const& batch, CublasOperand& operand) {
  if (find_operand(batch, operand)) return batch;
  Tensor copy = torch::stable::contiguous(batch);
  find_operand(copy, operand);
  return copy;
}

// As the kernels of tf32x3 take it.
FloatProduct of_floats(CublasProduct const& product) {
  auto const operand = [](CublasOperand const& given) {
    return FloatOperand{static_cast<float const*>(given.data), given.ld, given.batch_stride,
                        given.major};
  };
  return {product.batch, product.m,          product.n,
          product.k,     operand(product.x), operand(product.weight),
          product.y,     product.ldy,        product.y_batch_stride,
          product.y_type};
}

// What stands behind each product of a batch.
struct Tails {
  AddScaled::Args const* added;  // or null: nothing
  bool adds_y;                   // its c is y
};

// Each product by a plan of its own.
void multiply_one_by_one(char const* op, Tensor const& x, Tensor const& weight, Tensor const& y,
                         DataType type, Precision precision, Tails const& tails,
                         Device const& device) {
  BareCall const bare;
  for (int64_t b = 0; b < x.size(0); ++b) {
    auto const of_batch = [&](Tensor const& batch) { return torch::stable::select(batch, 0, b); };
    Matrices matrices = check_matrices(op, of_batch(x), of_batch(weight));
    check_operands(op, matrices, precision);
    EpilogueCall epilogue = bare.call;
    AddScaled::Args own;
    if (tails.added != nullptr) {
      own = *tails.added;
      if (own.c.data != nullptr) own.c.data += b * own.c.batch_stride;
      epilogue = call_epilogue<AddScaled>(own);
      epilogue.reads_y = tails.adds_y;
    }
    run_linear_into(op, std::move(matrices), epilogue, precision, of_batch(y), type,
                    Tail::kEpilogue, device);
  }
}

// y = alpha * sums + beta * c of all products.
void add_behind(Product const& product, CublasProduct const& batch, void const* sums,
                AddScaled::Args const& added) {
  GemmArgs gemm = product.gemm;
  gemm.y = batch.y;
  check_status(product.op, find_epilogue(names::kAddScaled)
                               ->apply(gemm, batch.batch, static_cast<float const*>(sums), &added,
                                       product.device, current_stream(product.device)));
}

// False: not by this plan.
bool multiply_at_once(Product const& product, CublasProduct const& given, ProductPlan const& chosen,
                      Tails const& tails) {
  Plan plan;
  plan.product = chosen;
  if (chosen.by == ProductBy::kUnknownTile) check_status(product.op, Status::kUnknownTile);
  if (chosen.by != ProductBy::kCublas && chosen.by != ProductBy::kTf32x3) return false;
  bool const adds = tails.added != nullptr;
  plan.applies_behind =
      adds && (chosen.by == ProductBy::kCublas ||
               !is_compiled_with(names::kAddScaled, chosen, product.problem, product.device));
  // What is added must still be there when the products are.
  CublasProduct batch = given;
  std::optional<Tensor> sums;
  if (plan.applies_behind && tails.adds_y) {
    sums = allocate(product.like, {batch.batch, batch.m, batch.n}, ScalarType::Float);
    batch.y = sums->mutable_data_ptr();
  }
  if (chosen.by == ProductBy::kCublas) {
    if (!multiply_by_cublas(batch, product.device)) return false;
    log_plan(product, plan);
  } else {
    log_plan(product, plan);
    BareCall const bare;
    bool const fuses = adds && !plan.applies_behind;
    launch_tf32x3(product.op, of_floats(batch), product.precision, chosen,
                  fuses ? call_epilogue<AddScaled>(*tails.added) : bare.call, product.device,
                  product.like);
  }
  if (plan.applies_behind) add_behind(product, given, batch.y, *tails.added);
  return true;
}

}  // namespace

ProductPlan const& find_batched_plan(Problem const& problem, Device const& device, Struck struck) {
  static thread_local Memo<ProductPlan, PlanKey> memo;
  Overrides overrides = find_overrides(problem, device);
  overrides.struck = strike_missing(struck);
  return *memo.find(make_plan_key(problem, Tail{}, device, overrides), [&](ProductPlan& plan) {
    plan = choose_batched(problem, device, overrides);
    return true;
  });
}

void make_batched(Problem& problem, int64_t batch, int64_t x_stride, int64_t weight_stride) {
  problem.batch = batch;
  // Each matrix of the batch is to be aligned as the first one is.
  int const size = size_of(spec_of(problem.math).type);
  if (x_stride * size % 16 != 0) problem.x.alignment = size;
  if (weight_stride * size % 16 != 0) problem.weight.alignment = size;
}

Tensor run_batched(char const* op, Tensor const& x, Tensor const& weight, DataType type,
                   Precision precision) {
  int64_t const batches = x.size(0), m = x.size(1), n = weight.size(1), k = x.size(2);
  DeviceScope const scope(op, x);
  Tensor y = allocate(x, {batches, m, n}, to_scalar_type(type));
  if (batches * m * n == 0) return y;
  if (k == 0) return torch::stable::zero_(y);
  run_batched_into(op, x, weight, y, type, precision);
  return y;
}

void run_batched_into(char const* op, Tensor const& x, Tensor const& weight, Tensor const& y,
                      DataType type, Precision precision, AddScaled::Args const* added,
                      bool adds_y) {
  int64_t const batches = x.size(0), m = x.size(1), n = weight.size(1), k = x.size(2);
  DeviceScope const scope(op, x);
  Tails const tails{added, adds_y};
  // Where K is 0, or alpha, there is nothing to multiply.
  if (k == 0 || (added != nullptr && added->alpha == 0.0f)) {
    auto const without_k = [](Tensor batch) { return torch::stable::narrow(batch, 2, 0, 0); };
    return multiply_one_by_one(op, without_k(x), without_k(weight), y, type, precision, tails,
                               scope.device());
  }
  MathId const math = choose_math(type, precision, k);
  CublasProduct batch{batches,
                      m,
                      n,
                      k,
                      {},
                      {},
                      y.mutable_data_ptr(),
                      n,
                      m * n,
                      type,
                      type,
                      spec_of(math).precision};
  Tensor const x_read = as_operand(x, batch.x), weight_read = as_operand(weight, batch.weight);
  GemmArgs const gemm{
      m,       n, k,    batch.x.data,  batch.x.ld,        batch.weight.data, batch.weight.ld,
      batch.y, n, type, batch.x.major, batch.weight.major};
  Problem problem = make_problem(math, gemm);
  make_batched(problem, batches, batch.x.batch_stride, batch.weight.batch_stride);
  Device const& device = scope.device();
  Product const product{op, precision, std::nullopt, gemm, problem, device, y};
  ProductPlan chosen = find_batched_plan(problem, device);
  bool done = multiply_at_once(product, batch, chosen, tails);
  if (!done && chosen.by == ProductBy::kCublas) {
    TileOverride const* const forced = forced_tile.load();
    STD_TORCH_CHECK(forced == nullptr || !forced->cublas, op, ": cuBLAS refuses the product");
    chosen = find_batched_plan(problem, device, Struck().with(Part::kCublas));
    done = multiply_at_once(product, batch, chosen, tails);
  }
  if (!done) {
    multiply_one_by_one(op, x_read, weight_read, y, type, precision, tails, device);
  }
}

}  // namespace cutlass_fused
