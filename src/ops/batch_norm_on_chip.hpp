// A batch norm in training by the kernel that keeps the matrix on chip, where it serves.
#pragma once

#include <optional>
#include <tuple>

#include "cutlass_fused/norm/on_chip/plan.hpp"
#include "ops/allocate.hpp"
#include "ops/batch_statistics.hpp"

namespace cutlass_fused {

// The mean and rstd of z, which has been normalized into y; z may be y. Nothing: no kernel serves.
// `counted`: whether the batch has been counted, before and after. `stored`: less which shifts of
// columns z is stored.
inline std::optional<std::tuple<Tensor, Tensor>> run_on_chip(char const* op, Matrix const& z,
                                                             BatchNorm const& batch_norm,
                                                             Tensor const& y, Device const& device,
                                                             bool& counted,
                                                             StoredShifts const& stored = {}) {
  ClusterPlan const plan = choose_cluster_plan(z, y.const_data_ptr(), device);
  if (!plan) return {};
  Tensor const mean = allocate(y, {z.columns}, ScalarType::Float);
  Tensor const rstd = allocate(y, {z.columns}, ScalarType::Float);
  cudaStream_t const stream = current_stream(device);
  RunningStatistics running = batch_norm.running;
  if (running.cumulative && !counted) {
    check_status(op, run_count_batch(running.num_batches_tracked, device, stream));
    counted = true;
  }
  if (counted && !running.cumulative) running.num_batches_tracked = nullptr;
  Status const status = for_type(z.type, [&](auto type) {
    return run_batch_norm_cluster<type()>(
        z, plan, batch_norm.gamma, batch_norm.beta, batch_norm.eps, running,
        static_cast<float*>(mean.mutable_data_ptr()), static_cast<float*>(rstd.mutable_data_ptr()),
        stored, y.mutable_data_ptr(), device, stream);
  });
  if (status == Status::kNoKernel) return {};
  check_status(op, status);
  counted = true;
  return std::make_tuple(mean, rstd);
}

}  // namespace cutlass_fused
