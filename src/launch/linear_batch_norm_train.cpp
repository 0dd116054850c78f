#include "launch/linear_batch_norm_train.hpp"

#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "cutlass_fused/gemm/batch_norm.hpp"
#include "launch/allocate.hpp"
#include "launch/rows.hpp"

namespace cutlass_fused {
namespace {

// With a slope of 1 nothing is left of the activation.
ScaleLeakyReLU::Args without_activation(ScaleBias::Args const& product) {
  return {product.bias, {product.scale, 1.0f}, 1.0f};
}

// A call on its way: what its plans, of which a refused one is followed by another, share.
struct Training {
  Product const& product;
  ScaleBias::Args z_args;  // (acc + bias) * scale
  BatchNorm const& batch_norm;
  Tensor const &z, &y;
  Matrix rows;  // of z
  float* centre;
  BatchCount count;
  SplitOperands split = {};
  std::optional<std::tuple<Tensor, Tensor>> mean_and_rstd = {};  // of a y that is normalized
  std::optional<ComputedStatistics> statistics = {};             // of one that is not

  Device const& device() const { return product.device; }
  cudaStream_t stream() const { return current_stream(product.device); }
  Tensor allocate_columns() const { return allocate(y, {rows.columns}, ScalarType::Float); }

  std::optional<Part> run(Plan const& plan);

 private:
  // What is stored of z less shifts: the bias adds nothing to it, and the merge knows of that.
  StoredShifts find_shifts(Plan const& plan) const {
    StoredShifts stored{{}, nullptr, centre, nullptr};
    if (plan.shifts) stored.column = {z_args.bias, z_args.scale};
    return stored;
  }
  ScaleBias::Args find_stored_args(Plan const& plan) const {
    ScaleBias::Args stored = z_args;
    if (plan.shifts) stored.bias = Vector::constant(0.0f);
    return stored;
  }

  std::optional<Part> run_group(Plan const& plan);
  std::optional<Part> run_strips(Plan const& plan);
  std::optional<Part> run_passes(Plan const& plan);
};

// y in one kernel.
std::optional<Part> Training::run_group(Plan const& plan) {
  char const* const op = product.op;
  Tensor const mean = allocate_columns(), rstd = allocate_columns();
  int64_t const bytes = ranges_of_parts(product.problem.math, rows.rows).bytes(rows.columns);
  Tensor const parts = allocate(y, {bytes}, ScalarType::Byte);
  check_status(op,
               run_clear_parts(parts.mutable_data_ptr(), bytes, count.take(), device(), stream()));
  BatchNormOfProduct const of_product{z_args,
                                      batch_norm.gamma,
                                      batch_norm.beta,
                                      batch_norm.eps,
                                      count.running(),
                                      static_cast<float*>(mean.mutable_data_ptr()),
                                      static_cast<float*>(rstd.mutable_data_ptr())};
  StatisticsPointers pointers;
  pointers.parts.parts = static_cast<uint64_t*>(parts.mutable_data_ptr());
  EpilogueCall const epilogue{plan.epilogue, &of_product};
  if (auto const refused = launch_product(product, plan, epilogue, split, pointers)) return refused;
  mean_and_rstd = {mean, rstd};
  return {};
}

// Two kernels that run at the same time: norm/strips.hpp.
std::optional<Part> Training::run_strips(Plan const& plan) {
  char const* const op = product.op;
  Problem const& problem = product.problem;
  StoredShifts stored = find_shifts(plan);
  // The vectors of the statistics' columns begin on a cache line of their own.
  int64_t const columns = StripCounters::strips(rows.columns) * kColumnsOfStrip;
  Ranges const ranges = ranges_of_parts(problem.math, rows.rows);
  size_t const parts_bytes = ranges.bytes(columns), shifts_bytes = ranges.shifts_bytes(columns);
  size_t const vector_bytes = columns * sizeof(float);
  size_t const counter_bytes = StripCounters::bytes(rows.columns);
  Tensor const mean = allocate_columns(), rstd = allocate_columns();
  Tensor const workspace =
      allocate(y, {int64_t(parts_bytes + shifts_bytes + 2 * vector_bytes + counter_bytes)},
               ScalarType::Byte);
  auto* const parts = static_cast<char*>(workspace.mutable_data_ptr());
  PartPointers const pointers{reinterpret_cast<uint64_t*>(parts), far_mean(rows.type),
                              reinterpret_cast<float*>(parts + parts_bytes)};
  char* const vectors = parts + parts_bytes + shifts_bytes;
  if (stored.centre == nullptr) stored.centre = reinterpret_cast<float*>(vectors + vector_bytes);
  stored.shifts = pointers.shifts;
  StripCounters const counters = StripCounters::make(vectors + 2 * vector_bytes, rows.columns);
  RunningStatistics const running = count.prepare(op, device());
  bool const cleared = cudaMemsetAsync(counters.tiles, 0, counter_bytes, stream()) == cudaSuccess;
  check_status(op, cleared ? Status::kSuccess : Status::kCudaError);
  ScaleBias::Args const args = find_stored_args(plan);
  if (auto const refused = launch_product(product, plan, {plan.epilogue, &args}, split,
                                          {pointers, counters.tiles})) {
    return refused;
  }
  BatchStatistics const to{static_cast<float*>(mean.mutable_data_ptr()),
                           static_cast<float*>(rstd.mutable_data_ptr()),
                           reinterpret_cast<float*>(vectors), nullptr};
  int const tile_columns = size_of_tile(plan.product, problem).columns;
  // Only a z of 16 bits is planned in strips.
  Status const normalized = for_type(rows.type, [&](auto type) {
    if constexpr (size_of(type()) == 2) {
      return run_normalize_strips<type()>(
          rows, ranges, tile_columns, parts, counters, batch_norm.gamma, batch_norm.beta,
          batch_norm.eps, running, to, stored, y.mutable_data_ptr(), device(), stream());
    }
    return Status::kNoKernel;
  });
  check_status(op, normalized);
  count.done();
  mean_and_rstd = {mean, rstd};
  return {};
}

// Memory for what a product writes beside z: its shifts only of a z of 16 bits.
ProductStatistics allocate_parts(Tensor const& like, Ranges const& ranges, Matrix const& z) {
  bool const is_shifted = size_of(z.type) == 2;
  size_t const bytes = ranges.bytes(z.columns);
  size_t const shifts_bytes = is_shifted ? ranges.shifts_bytes(z.columns) : 0;
  Tensor const workspace = allocate(like, {int64_t(bytes + shifts_bytes)}, ScalarType::Byte);
  auto* const parts = static_cast<char*>(workspace.mutable_data_ptr());
  return {workspace,
          ranges,
          {reinterpret_cast<uint64_t*>(parts), far_mean(z.type),
           is_shifted ? reinterpret_cast<float*>(parts + bytes) : nullptr}};
}

Ranges find_ranges(Plan const& plan, Problem const& problem) {
  int64_t const rows = size_of_tile(plan.product, problem).rows;
  return {ceil_div(problem.m, rows), rows};
}

// The product, which may find the statistics of its tiles, and kernels behind it.
std::optional<Part> Training::run_passes(Plan const& plan) {
  char const* const op = product.op;
  ScaleBias::Args const args = find_stored_args(plan);
  ScaleLeakyReLU::Args const plain_args = without_activation(args);
  std::optional<ProductStatistics> found;
  std::optional<Part> refused;
  if (plan.norm == NormBy::kProductStatistics) {
    found = allocate_parts(y, find_ranges(plan, product.problem), rows);
    refused = launch_product(product, plan, {plan.epilogue, &args}, split, {found->parts});
  } else {
    refused = launch_product(product, plan, {plan.epilogue, &plain_args}, split);
  }
  if (refused) return refused;
  if (plan.repair == Repair::kRows) {
    launch_repair(product, call_epilogue<ScaleLeakyReLU>(plain_args), split);
  } else if (plan.repair == Repair::kWithMerge) {
    found->repair =
        ProductToRepair{product.gemm, plain_args, split.x->matrix(), split.weight->matrix()};
  }
  StoredShifts const stored = find_shifts(plan);
  if (plan.norm == NormBy::kOnChip) {
    mean_and_rstd = run_on_chip(op, plan.on_chip, rows, batch_norm, y, device(), count, stored);
    if (mean_and_rstd) return {};
  }
  statistics = compute_statistics(op, rows, batch_norm, y, device(), count, found, stored);
  return {};
}

std::optional<Part> Training::run(Plan const& plan) {
  switch (plan.norm) {
    case NormBy::kGroup:
      return run_group(plan);
    case NormBy::kStrips:
      return run_strips(plan);
    case NormBy::kNone:
    case NormBy::kColumns:
    case NormBy::kProductStatistics:
    case NormBy::kOnChip:
      break;
  }
  return run_passes(plan);
}

}  // namespace

TrainedProduct run_linear_train(char const* op, Matrices matrices, ScaleBias::Args const& z_args,
                                Precision precision, DataType y_type, BatchNorm const& batch_norm,
                                bool keep_z, float* centre, bool is_last, Device const& device) {
  check_operands(op, matrices, precision);
  check_columns(op, matrices);
  ScalarType const dtype = to_scalar_type(y_type);
  Tensor y = allocate(matrices.x, matrices.y_shape, dtype);
  Tensor kept = allocate(matrices.x, {keep_z ? matrices.m : 0, matrices.n}, dtype);
  if (matrices.m == 0 || matrices.n == 0) {
    auto [mean, rstd] = count_empty_batch(op, matrices, batch_norm, device);
    if (centre != nullptr) clear_vector(op, centre, matrices.n, device);
    return {{y, kept, mean, rstd}, {}, {}, true};
  }
  Tensor const& z = keep_z ? kept : y;
  Product const product = make_product(op, matrices, precision, z, y_type, device);
  Training training{product,    z_args,
                    batch_norm, z,
                    y,          view_rows(z, matrices, y_type),
                    centre,     BatchCount(batch_norm.running)};
  Tail tail{Tail::kBatchNorm};
  tail.keeps_z = keep_z;
  tail.has_centre = centre != nullptr;
  tail.is_last = is_last;
  tail.y_alignment = alignment_of(y.const_data_ptr());
  Struck struck;
  while (auto const refused = training.run(Plan(find_plan(product, tail, struck)))) {
    struck = struck.with(*refused);
  }
  if (training.mean_and_rstd) {
    auto const& [mean, rstd] = *training.mean_and_rstd;
    return {{y, kept, mean, rstd}, view_rows(y, matrices, y_type), {}};
  }
  ComputedStatistics const& computed = *training.statistics;
  return {{y, kept, computed.mean, computed.rstd}, training.rows, computed};
}

}  // namespace cutlass_fused
