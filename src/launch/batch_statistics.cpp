#include "launch/batch_statistics.hpp"

#include <cmath>

#include "launch/allocate.hpp"

namespace cutlass_fused {
namespace {

RunningVector check_running(char const* op, char const* name, std::optional<Tensor> const& tensor,
                            Matrices const& matrices) {
  if (!tensor.has_value()) return {};
  Vector const vector = check_vector(op, name, tensor, matrices, 0.0f);
  STD_TORCH_CHECK(vector.stride != 0 || matrices.n <= 1, op, ": ", name,
                  " must have elements of its own, which are updated in place, got stride 0");
  return {tensor->mutable_data_ptr(), vector.stride, vector.type};
}

int64_t* check_count(char const* op, BatchNormArguments const& arguments, Tensor const& x) {
  if (!arguments.num_batches_tracked.has_value()) {
    bool const unused = !arguments.running_mean.has_value() && !arguments.running_var.has_value();
    STD_TORCH_CHECK(arguments.momentum.has_value() || unused, op,
                    ": num_batches_tracked must be a tensor where momentum is None, got None");
    return nullptr;
  }
  Tensor const& count = *arguments.num_batches_tracked;
  check_device(op, "num_batches_tracked", count, x);
  STD_TORCH_CHECK(count.scalar_type() == ScalarType::Long, op,
                  ": num_batches_tracked must be int64, got ", dtype_string(count.scalar_type()));
  STD_TORCH_CHECK(count.numel() == 1, op, ": num_batches_tracked must have one element, got shape ",
                  shape_string(count));
  return static_cast<int64_t*>(count.mutable_data_ptr());
}

}  // namespace

BatchNorm check_batch_norm(char const* op, BatchNormArguments const& arguments,
                           Matrices const& matrices) {
  BatchNorm batch_norm;
  RunningStatistics& running = batch_norm.running;
  running.mean = check_running(op, "running_mean", arguments.running_mean, matrices);
  running.var = check_running(op, "running_var", arguments.running_var, matrices);
  batch_norm.gamma = check_vector(op, "gamma", arguments.gamma, matrices, 1.0f);
  batch_norm.beta = check_vector(op, "beta", arguments.beta, matrices, 0.0f);
  batch_norm.eps = float(arguments.eps);
  running.num_batches_tracked = check_count(op, arguments, matrices.x);
  running.momentum = arguments.momentum.value_or(0.0);
  running.cumulative = !arguments.momentum.has_value() && running.num_batches_tracked != nullptr;
  STD_TORCH_CHECK(matrices.m != 1, op,
                  ": x must have more than 1 row when statistics are computed, got shape ",
                  shape_string(matrices.x));
  return batch_norm;
}

float* check_centre(char const* op, std::optional<Tensor> const& centre, Matrices const& matrices) {
  if (!centre.has_value()) return nullptr;
  Vector const vector = check_vector(op, "centre", centre, matrices, 0.0f);
  STD_TORCH_CHECK(vector.type == DataType::kFloat32, op, ": centre must be float32, got ",
                  dtype_string(centre->scalar_type()));
  STD_TORCH_CHECK(vector.stride == 1 || matrices.n <= 1, op,
                  ": centre must be contiguous, got stride ", vector.stride);
  return static_cast<float*>(centre->mutable_data_ptr());
}

Normalization ComputedStatistics::normalization() const {
  return {{centre, 1, DataType::kFloat32, 0.0f},
          {a, 1, DataType::kFloat32, 0.0f},
          {d, 1, DataType::kFloat32, 0.0f}};
}

RunningStatistics BatchCount::prepare(char const* op, Device const& device) {
  RunningStatistics running = running_;
  if (running.cumulative) {
    if (int64_t* const count = take()) {
      check_status(op, run_count_batch(count, device, current_stream(device)));
    }
  } else {
    running.num_batches_tracked = left_;
  }
  return running;
}

ComputedStatistics compute_statistics(char const* op, Matrix const& z, BatchNorm const& batch_norm,
                                      Tensor const& like, Device const& device, BatchCount& count,
                                      std::optional<ProductStatistics> const& product,
                                      StoredShifts stored) {
  Ranges const ranges = product ? product->ranges : choose_ranges(z, device);
  // UniformNormalization reads these vectors 16 bytes at a time.
  auto const align = [](size_t bytes) { return (bytes + 15) / 16 * 16; };
  size_t const partial_bytes = product ? 0 : align(ranges.bytes(z.columns));
  size_t const vector_bytes = align(z.columns * sizeof(float));
  stored.shifts = product ? product->parts.shifts : nullptr;
  size_t const moved_bytes = align(ceil_div(z.columns, int64_t(kColumnsOfMerge)) * sizeof(int));
  ComputedStatistics computed{
      allocate(like, {z.columns}, ScalarType::Float),
      allocate(like, {z.columns}, ScalarType::Float),
      allocate(like, {int64_t(partial_bytes + 3 * vector_bytes + moved_bytes)}, ScalarType::Byte)};
  auto* const workspace = static_cast<char*>(computed.workspace.mutable_data_ptr());
  auto* const a = reinterpret_cast<float*>(workspace + partial_bytes);
  auto* const d = a + vector_bytes / sizeof(float);
  if (stored.centre == nullptr) stored.centre = d + vector_bytes / sizeof(float);
  if (stored.shifts != nullptr) {
    stored.moved = reinterpret_cast<int*>(workspace + partial_bytes + 3 * vector_bytes);
  }
  computed.a = a;
  computed.d = d;
  computed.centre = stored.centre;
  computed.behind = {true, stored.moved};
  void const* partials = workspace;
  cudaStream_t const stream = current_stream(device);
  RunningStatistics running;
  if (product) {
    partials = product->parts.parts;
    running = count.prepare(op, device);
  } else {
    running = count.running();
    check_status(op, for_type(z.type, [&](auto type) {
                   return run_column_statistics<type()>(z, ranges, workspace, count.take(), device,
                                                        stream);
                 }));
  }
  BatchStatistics const statistics{static_cast<float*>(computed.mean.mutable_data_ptr()),
                                   static_cast<float*>(computed.rstd.mutable_data_ptr()), a, d};
  if (product && product->repair) {
    check_status(op, run_repair_and_merge(*product->repair, ranges, partials, batch_norm.gamma,
                                          batch_norm.beta, batch_norm.eps, running, statistics,
                                          stored, device, stream));
  } else {
    auto const from = product ? PartialsFrom::kRepairedProduct : PartialsFrom::kColumns;
    check_status(op,
                 run_merge_statistics(z, ranges, from, partials, batch_norm.gamma, batch_norm.beta,
                                      batch_norm.eps, running, statistics, stored, device, stream));
  }
  count.done();
  return computed;
}

std::optional<std::tuple<Tensor, Tensor>> run_on_chip(char const* op, ClusterPlan const& plan,
                                                      Matrix const& z, BatchNorm const& batch_norm,
                                                      Tensor const& y, Device const& device,
                                                      BatchCount& count,
                                                      StoredShifts const& stored) {
  Tensor const mean = allocate(y, {z.columns}, ScalarType::Float);
  Tensor const rstd = allocate(y, {z.columns}, ScalarType::Float);
  RunningStatistics const running = count.prepare(op, device);
  Status const status = for_type(z.type, [&](auto type) {
    return run_batch_norm_cluster<type()>(
        z, plan, batch_norm.gamma, batch_norm.beta, batch_norm.eps, running,
        static_cast<float*>(mean.mutable_data_ptr()), static_cast<float*>(rstd.mutable_data_ptr()),
        stored, y.mutable_data_ptr(), device, current_stream(device));
  });
  if (status == Status::kNoKernel) return {};
  check_status(op, status);
  count.done();
  return std::make_tuple(mean, rstd);
}

std::tuple<Tensor, Tensor> count_empty_batch(char const* op, Matrices const& matrices,
                                             BatchNorm const& batch_norm, Device const& device) {
  // Counted last: an allocation that fails leaves the count as it was.
  Tensor mean = torch::stable::new_zeros(matrices.x, {matrices.n}, ScalarType::Float);
  Tensor rstd = allocate(matrices.x, {matrices.n}, ScalarType::Float);
  torch::stable::fill_(rstd, 1.0 / std::sqrt(double(batch_norm.eps)));
  int64_t* const count = batch_norm.running.num_batches_tracked;
  if (count != nullptr) check_status(op, run_count_batch(count, device, current_stream(device)));
  return {mean, rstd};
}

void clear_vector(char const* op, float* vector, int64_t size, Device const& device) {
  bool const cleared =
      cudaMemsetAsync(vector, 0, size * sizeof(float), current_stream(device)) == cudaSuccess;
  check_status(op, cleared ? Status::kSuccess : Status::kCudaError);
}

}  // namespace cutlass_fused
