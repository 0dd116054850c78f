// Batch norm in training with one read and one write, where the columns fit on chip.
//
// A cluster owns a group of columns, each of its blocks a range of rows, which stay in registers or
// shared memory between the statistics and the normalization. No atomics and a fixed order: two
// runs give the same bits, and so do all blocks of a cluster.
//
// A block's mean is summed first, in fp32, and with it the sums of d = x - mean and of d^2, of
// which the first is what the rounded mean lacks:
//
//   mean = centre + sum(d) / rows,   M2 = sum(d^2) - sum(d)^2 / rows
//
// However large the mean is, the differences round little.
#pragma once

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "cutlass_fused/norm/on_chip/plan.hpp"
#include "cutlass_fused/norm/on_chip/cluster_rows_sm90.cuh"
#include "cutlass_fused/norm/on_chip/cluster_sums_sm90.cuh"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/norm/statistics/moments.cuh"
#include "cutlass_fused/norm/statistics/move_running.cuh"
#include "cutlass_fused/common/prefetch.cuh"

namespace cutlass_fused {

struct BatchNormClusterParams {
  Matrix x;
  void* y;
  int64_t rows_per_block;
  double reciprocal;  // of the rows
  Vector gamma, beta;
  float eps;
  RunningStatistics running;
  float *mean, *rstd;
  StoredShifts stored;  // those of columns
  int64_t* count;       // counted up here, if the mean is not cumulative; may be null
};

template <class Block>
__global__ void __launch_bounds__(Block::kThreads, Block::kBlocksPerSm)
    batch_norm_cluster(__grid_constant__ BatchNormClusterParams const params) {
#if __CUDA_ARCH__ >= 900
  using In = typename Block::In;
  constexpr int kWidth = Block::kWidth, kColumns = Block::kColumns;
  __shared__ alignas(16) WarpSums<Block> slots[3];  // of x / rows, d and d^2
  __shared__ double2 part[kColumns];                // mean and M2, for the other blocks
  __shared__ double2 totals[kColumns];              // the same, for the running statistics
  __shared__ alignas(16) float means[kColumns], factors[kColumns], offsets[kColumns];

  auto const cluster = cooperative_groups::this_cluster();
  int const blocks = int(cluster.num_blocks()), rank = int(cluster.block_rank());
  int const lane = threadIdx.x % Block::kLanes, thread = threadIdx.x;
  // At most 2^30 columns: a base behind the last one does not overflow.
  int const base = int(blockIdx.x / blocks) * kColumns, columns = int(params.x.columns);
  int64_t const rows = params.x.rows;
  auto const count_rows = [&](int block) {
    int64_t const left = rows - block * params.rows_per_block;
    return int(max(min(left, params.rows_per_block), int64_t(0)));
  };
  int const own_rows = count_rows(rank);
  int64_t const row = rank * params.rows_per_block + thread / Block::kLanes;
  int const column = base + lane * kWidth;
  int const left = own_rows - thread / Block::kLanes;
  int const count = column < columns && left > 0 ? (left + Block::kRows - 1) / Block::kRows : 0;
  // The column whose statistics this thread merges.
  int const n = base + thread;
  bool const merges = thread < kColumns && n < columns;

  wait_for_previous_kernel();
  ClusterRows<Block> held;
  held.load(static_cast<In const*>(params.x.data) + row * params.x.ld + column,
            int64_t(Block::kRows) * params.x.ld, count);
  // Asked for here, waited for where it is used.
  ColumnShift::Raw column_shift{};
  if (merges) column_shift = params.stored.column.fetch(n);
  bool const counts = params.count != nullptr && blockIdx.x == 0 && thread == 0;
  int64_t const batches = counts ? *params.count : 0;
  // Vectors by different warps, so that none waits for memory more than once.
  int const entry = thread % Block::kVectorThreads;
  constexpr int kVectors = Block::kThreads / Block::kVectorThreads;  // at a time
  for (int vector = thread / Block::kVectorThreads; vector < 3; vector += kVectors) {
    if (entry >= kColumns || base + entry >= columns) break;
    switch (vector) {
      case 0:
        factors[entry] = params.gamma(base + entry);
        break;
      case 1:
        offsets[entry] = params.beta(base + entry);
        break;
      case 2:
        if (rank > 0) break;
        prefetch(view_running(params.running.mean), base + entry);
        prefetch(view_running(params.running.var), base + entry);
    }
  }

  // Divided first: a sum of large numbers might overflow.
  float const reciprocal = own_rows > 0 ? 1.0f / float(own_rows) : 0.0f;
  float sums[kWidth] = {};
  held.for_each(count, [&](int, In const(&elements)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = fmaf(to_float(elements[i]), reciprocal, sums[i]);
  });
  write_warp_sums<Block>(sums, slots[0]);
  __syncthreads();

  constexpr int kTerms = 8;  // squares in a sum of their own: long sums in fp32 round more
  float centre[kWidth], squares[kWidth] = {}, few[kWidth] = {};
  add_warp_sums<Block>(slots[0], lane * kWidth, centre);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] = 0.0f;
  held.for_each(count, [&](int p, In const(&elements)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float const d = to_float(elements[i]) - centre[i];
      sums[i] += d;
      few[i] = fmaf(d, d, few[i]);
    }
    if (p % kTerms < kTerms - 1) return;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      squares[i] += few[i];
      few[i] = 0.0f;
    }
  });
#pragma unroll
  for (int i = 0; i < kWidth; ++i) squares[i] += few[i];
  write_warp_sums<Block>(sums, slots[1]);
  write_warp_sums<Block>(squares, slots[2]);
  __syncthreads();
  if (merges) {
    float middle[1];
    double d[1], dd[1];
    add_warp_sums<Block>(slots[0], thread, middle);
    add_warp_sums<Block>(slots[1], thread, d);
    add_warp_sums<Block>(slots[2], thread, dd);
    // Not by the reciprocal, which is rounded: of equal numbers the difference shall be zero.
    double const lacking = own_rows > 0 ? d[0] / own_rows : 0.0, m2 = dd[0] - d[0] * lacking;
    // Rounding may leave it a little below zero; a NaN must stay one.
    part[thread] = {double(middle[0]) + lacking, m2 < 0.0 ? 0.0 : m2};
  }
  // A block alone waits for nobody: each thread reads what it has written itself.
  bool const is_single = blocks == 1;
  if (!is_single) cluster.sync();

  if (merges) {
    double2 parts[kMostClusterBlocks];
    if (is_single) {
      parts[0] = part[thread];
    } else {
#pragma unroll
      for (int block = 0; block < kMostClusterBlocks; ++block) {
        if (block < blocks) parts[block] = *cluster.map_shared_rank(&part[thread], block);
      }
    }
    PartSums merged;
#pragma unroll
    for (int block = 0; block < kMostClusterBlocks; ++block) {
      if (block < blocks) {
        merged.add(double(count_rows(block)), parts[block].x, parts[block].y, parts[0].x);
      }
    }
    double const shift = params.stored.column.convert(column_shift);
    double const mean = merged.mean(parts[0].x, params.reciprocal) + spoilt_by(shift);
    double const m2 = merged.total_m2(params.reciprocal) + spoilt_by(shift);
    float const rstd = float(rsqrt(m2 * params.reciprocal + double(params.eps)));
    if (rank == 0) {
      params.mean[n] = float(mean + shift);
      if (params.stored.centre != nullptr) params.stored.centre[n] = float(mean);
      params.rstd[n] = rstd;
      totals[thread] = {mean + shift, m2};
    }
    means[thread] = float(mean);
    factors[thread] *= rstd;
  }
  // No block may leave while others read its part. Relaxed: nothing that was written is waited for,
  // and what was read has been used.
  if (!is_single) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  __syncthreads();

  In* const y = static_cast<In*>(params.y) + row * columns + column;
  alignas(16) float a[kWidth], d[kWidth];
  load_shared(&means[lane * kWidth], centre);
  load_shared(&factors[lane * kWidth], a);
  load_shared(&offsets[lane * kWidth], d);
  held.for_each(count, [&](int p, In const(&elements)[kWidth]) {
    float v[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = fmaf(to_float(elements[i]) - centre[i], a[i], d[i]);
    ClusterPiece<In, kWidth> to;
    to.round(v);
    to.store(y + int64_t(p) * Block::kRows * columns);
  });
  if (merges && rank == 0) {
    move_running(params.running, n, totals[thread].x, totals[thread].y, double(rows));
  }
  if (counts) *params.count = batches + 1;
  if (!is_single) asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
}

}  // namespace cutlass_fused
