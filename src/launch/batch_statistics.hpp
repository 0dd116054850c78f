// What the ops with a batch's statistics share: their arguments checked, the kernels launched.
#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include "cutlass_fused/gemm/fp16x3/repair_and_merge.hpp"
#include "cutlass_fused/norm/on_chip/plan.hpp"
#include "launch/rows.hpp"

namespace cutlass_fused {

// The arguments of a batch norm in training, as the schemas have them.
struct BatchNormArguments {
  std::optional<Tensor> const& running_mean;
  std::optional<Tensor> const& running_var;
  std::optional<Tensor> const& num_batches_tracked;
  std::optional<Tensor> const& gamma;
  std::optional<Tensor> const& beta;
  std::optional<double> momentum;
  double eps;
};

// The arguments above, checked.
struct BatchNorm {
  Vector gamma, beta;
  float eps;
  RunningStatistics running;
};

// Throws, before anything is allocated or changed, unless the arguments fit N columns and x more
// than one row.
BatchNorm check_batch_norm(char const* op, BatchNormArguments const& arguments,
                           Matrices const& matrices);

// Where an op stores the mean of the z that it returns; null: not wanted. Throws unless it is a
// contiguous float32 vector (N,) on the device of x.
float* check_centre(char const* op, std::optional<Tensor> const& centre, Matrices const& matrices);

// Who counts the batch: the first kernel that can, of those that are launched.
class BatchCount {
 public:
  explicit BatchCount(RunningStatistics const& running)
      : running_(running), left_(running.num_batches_tracked) {}

  // The count for a kernel that counts in front of all that read it; null where that is done.
  int64_t* take() { return std::exchange(left_, nullptr); }

  // For a kernel that counts the batch itself, unless the mean is cumulative: then one of its own
  // counts it now. To be followed by done() when that kernel was launched.
  RunningStatistics prepare(char const* op, Device const& device);
  void done() { left_ = nullptr; }

  // What moves by a count that is done.
  RunningStatistics const& running() const { return running_; }

 private:
  RunningStatistics running_;
  int64_t* left_;
};

// The statistics of a batch as an op returns them; `workspace` holds what its second pass reads
// too.
struct ComputedStatistics {
  Tensor mean, rstd, workspace;
  float const *a = nullptr, *d = nullptr;  // gamma * rstd, and beta
  float const* centre = nullptr;           // the mean of z as it is stored
  BehindKernel behind = {};                // for the kernel that normalizes z

  // (z - centre) * a + d
  Normalization normalization() const;
};

// The partial statistics of z, from the product that computed it, and, where the merge repairs it
// too, what it takes for that.
struct ProductStatistics {
  Tensor workspace;
  Ranges ranges;
  PartPointers parts;
  std::optional<ProductToRepair> repair = {};
};

// Launches the statistics of z, or what is left of them, and the update of the running ones. `like`
// is on the device. `stored`: less which shifts of columns z is stored, and where its mean as it is
// stored is wanted, if it is.
ComputedStatistics compute_statistics(char const* op, Matrix const& z, BatchNorm const& batch_norm,
                                      Tensor const& like, Device const& device, BatchCount& count,
                                      std::optional<ProductStatistics> const& product = {},
                                      StoredShifts stored = {});

// The statistics of z, which is normalized into y by one kernel that keeps it on chip. Nothing: the
// GPU refused it. z may be y.
std::optional<std::tuple<Tensor, Tensor>> run_on_chip(char const* op, ClusterPlan const& plan,
                                                      Matrix const& z, BatchNorm const& batch_norm,
                                                      Tensor const& y, Device const& device,
                                                      BatchCount& count,
                                                      StoredShifts const& stored = {});

// For a batch without rows or columns, whose mean and variance count as 0: it is counted and moves
// no running statistic. Returns mean and rstd.
std::tuple<Tensor, Tensor> count_empty_batch(char const* op, Matrices const& matrices,
                                             BatchNorm const& batch_norm, Device const& device);

// vector = 0
void clear_vector(char const* op, float* vector, int64_t size, Device const& device);

template <class Scale>
void run_normalization(char const* op, Matrix const& x, NormalizationBy<Scale> const& normalization,
                       Tensor const& y, BehindKernel behind, Device const& device) {
  check_status(op, for_type(x.type, [&](auto type) {
                 return run_normalize<type()>(x, normalization, y.mutable_data_ptr(), behind,
                                              device, current_stream(device));
               }));
}

}  // namespace cutlass_fused
