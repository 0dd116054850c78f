// Batch norm in training with one kernel, where the matrix fits on chip: declarations, and how it
// is cut, in plain host integers.
#pragma once

#include <algorithm>
#include <cmath>

#include "cutlass_fused/norm/batch_norm.hpp"

namespace cutlass_fused {

// More than eight are not portable.
constexpr int kMostClusterBlocks = 8;

// How the blocks of a cluster share a group of columns, each with a range of rows.
struct ClusterPlan {
  int blocks = 0;       // of a cluster; 0: the kernel does not serve
  bool aligned = true;  // 16 bytes at a time
  int group_bytes = 0;  // of a row, whole pieces; not aligned: 32 columns
  int pieces = 0;       // rows that a thread holds in registers; 0: in shared memory
  int64_t rows_per_block = 0;

  explicit operator bool() const { return blocks > 0; }
};

constexpr int kClusterThreads = 256;
// Rows that a thread holds in registers: of pieces, or of single elements.
constexpr int kClusterPieces = 4, kClusterElements = 16;

// Bytes of shared memory that hold a block's rows, which all its threads have the same number of.
inline int64_t find_cluster_shared_bytes(ClusterPlan const& plan) {
  if (!plan || plan.pieces > 0) return 0;
  int64_t const rows_at_once =
      plan.aligned ? kClusterThreads * 16 / plan.group_bytes : kClusterThreads / 32;
  return ceil_div(plan.rows_per_block, rows_at_once) * rows_at_once * plan.group_bytes;
}

// Whether no other block shares its SM: then none writes while another reads.
inline bool is_alone(ClusterPlan const& plan, Device const& device) {
  return 2 * find_cluster_shared_bytes(plan) > device.shared_memory;
}

// What a plan costs, in bytes through the busiest SM: fitted by hand to an H200's times of 57
// shapes, where the one chosen took at most 6% more than the best. Each block takes as long as
// 22 KiB, and longer in a larger cluster, whose blocks meet. Groups of up to 16 columns took 1.2
// times as long, of up to 8 1.8 times. Clusters of four and more blocks do not fill a GPU's
// parts.
inline double cluster_cost(ClusterPlan const& plan, MatrixLayout const& x, Device const& device) {
  int64_t const groups = ceil_div(x.columns * size_of(x.type), plan.group_bytes);
  int const idle = plan.blocks < 4 ? 0 : plan.blocks < 8 ? 8 : 12;
  double per_sm = double(groups) * plan.blocks / std::max(1, device.sm_count - idle);
  if (per_sm < 2.0) per_sm = std::ceil(per_sm);
  int const columns = plan.group_bytes / size_of(x.type);
  double bytes = double(plan.rows_per_block) * plan.group_bytes;
  if (columns <= 16) bytes *= columns <= 8 ? 1.8 : 1.2;
  if (per_sm <= 1.0) {
    bytes *= 1.25;
  } else if (is_alone(plan, device)) {
    bytes *= 1.8;
  }
  if (!plan.aligned && plan.pieces == 0) bytes *= 4;
  return per_sm * (bytes + 1024 * (22 + 2 * plan.blocks));
}

// The most that a block can have for its rows: beside them lie sums of every warp, parts and
// coefficients of the columns, of 128 columns 17.5 KiB.
inline int64_t most_cluster_shared_bytes(Device const& device) {
  return device.shared_memory - 20480;
}

// `y_alignment`: bytes that the address of y is a multiple of, which is contiguous and of x's type.
inline ClusterPlan choose_cluster_plan(MatrixLayout const& x, int y_alignment,
                                       Device const& device) {
  ClusterPlan best;
  if (device.code < 90 || x.rows < 2 || x.columns < 1) return best;
  int const size = size_of(x.type);
  bool const aligned =
      x.alignment >= 16 && y_alignment >= 16 && x.ld * size % 16 == 0 && x.columns * size % 16 == 0;
  int64_t const most_shared = most_cluster_shared_bytes(device);
  // Single elements in shared memory, narrow groups and blocks that have an SM to themselves only
  // as long as launches count: over many bytes the kernels that read twice are faster.
  constexpr int64_t kMostBytesOfElements = 16 << 20, kMostBytesOfSlowPlans = 32 << 20;
  int64_t const all_bytes = x.rows * x.columns * size;
  double least = 0.0;
  for (int const bytes : {256, 128, 64, 32}) {
    if (!aligned && bytes != 32 * size) continue;
    int64_t const rows_at_once = aligned ? kClusterThreads * 16 / bytes : kClusterThreads / 32;
    for (int blocks = 1; blocks <= kMostClusterBlocks; blocks *= 2) {
      ClusterPlan plan{blocks, aligned, bytes, 0, ceil_div(x.rows, blocks)};
      int const most = aligned ? kClusterPieces : kClusterElements;
      if (ceil_div(plan.rows_per_block, rows_at_once) <= most) plan.pieces = most;
      if (find_cluster_shared_bytes(plan) > most_shared) continue;
      if (!aligned && plan.pieces == 0 && all_bytes > kMostBytesOfElements) continue;
      bool const slow = bytes == 32 || is_alone(plan, device);
      if (slow && all_bytes > kMostBytesOfSlowPlans) continue;
      double const cost = cluster_cost(plan, x, device);
      if (!best || cost < least) least = cost, best = plan;
    }
  }
  return best;
}

// y = (x - mean) * gamma * rstd + beta with the statistics of x, which are stored (fp32 vectors
// (N,), contiguous), and the running ones moved. y is a contiguous matrix like x, of x's type; it
// may be x itself, if that is contiguous. `stored`: less which shifts of columns x is stored, and
// where its mean as it is stored is wanted. The batch is counted here unless the mean is
// cumulative: then it must have been counted before. kNoKernel: the GPU has no room for such a
// cluster, and nothing was launched.
template <DataType kIn>
Status run_batch_norm_cluster(Matrix const& x, ClusterPlan const& plan, Vector const& gamma,
                              Vector const& beta, float eps, RunningStatistics const& running,
                              float* mean, float* rstd, StoredShifts const& stored, void* y,
                              Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
