// The batch norm of z behind a product that may still run: merge_statistics and normalize as units
// of work, in the order in which the product completes strips of z. strips.hpp tells the whole.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/norm/statistics/merge_statistics.cuh"
#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/norm/normalization.hpp"
#include "cutlass_fused/norm/strip_units.hpp"

namespace cutlass_fused {

static_assert(StripBlock::kLanes == MergeBlock::kLanes && StripBlock::kRows == MergeBlock::kSlices);

struct NormalizeStripsParams {
  MergeStatisticsParams merge;
  int tile_columns;
  StripUnits units;
  StripCounters counters;
  double reciprocal;  // of the number of rows
  void* y;
};

// One thread calls it. Behind that, and a barrier, all threads see what was written before.
__device__ __forceinline__ void wait_until(unsigned const* counter, unsigned count) {
  while (true) {
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    if (now >= count) return;
    __nanosleep(100);
  }
}

using StripMaps = Normalization::Column[kColumnsOfStrip];

// A block calls it, with a thread for each column.
__device__ __forceinline__ void load_maps(NormalizeStripsParams const& params, int strip,
                                          StripMaps& maps) {
  BatchStatistics const& found = params.merge.statistics;
  Normalization const map{{params.merge.stored.centre, 1, DataType::kFloat32, 0.0f},
                          {found.a, 1, DataType::kFloat32, 0.0f},
                          params.merge.beta};
  int const thread = threadIdx.y * StripBlock::kLanes + threadIdx.x;
  int const last = int(params.merge.x.columns) - 1;
  maps[thread] = map.convert(map.fetch(min(strip * kColumnsOfStrip + thread, last)));
}

// The maps stay in shared memory while registers are filled with rows.
template <DataType kIn>
__device__ __forceinline__ void normalize_chunk(NormalizeStripsParams const& params, int strip,
                                                int chunk, StripMaps const& maps) {
  using T = Storage<kIn>;
  constexpr int kWidth = kPieceWidth<kIn>, kStep = StripBlock::kRows * StripBlock::kUnroll;
  static_assert(kWidth * StripBlock::kLanes == kColumnsOfStrip);
  Matrix const& z = params.merge.x;
  int const columns = int(z.columns);
  Piece<kWidth, Access::kAligned> const piece(strip * kColumnsOfStrip, threadIdx.x);
  if (piece.first >= columns) return;
  int64_t const begin = int64_t(chunk) * StripBlock::kChunkRows + threadIdx.y;
  int64_t const end = min(begin - threadIdx.y + StripBlock::kChunkRows, z.rows);
  for (int64_t row = begin; row < end; row += kStep) {
    T const* const from = static_cast<T const*>(z.data) + row * z.ld;
    T* const to = static_cast<T*>(params.y) + row * columns;
    int const left = int(ceil_div(end - row, int64_t(StripBlock::kRows)));
    alignas(16) T raw[StripBlock::kUnroll][kWidth];
#pragma unroll
    for (int u = 0; u < StripBlock::kUnroll; ++u) {
      if (u < left) piece.load(from + u * StripBlock::kRows * z.ld, columns, raw[u]);
    }
    Normalization::Column own[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) own[i] = maps[threadIdx.x * kWidth + i];
#pragma unroll
    for (int u = 0; u < StripBlock::kUnroll; ++u) {
      if (u >= left) break;
      float y[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) y[i] = own[i](to_float(raw[u][i]));
      piece.store(y, to + int64_t(u) * StripBlock::kRows * columns, columns);
    }
  }
}

// Blocks take units in their order. One waits for tiles of the product, all of whose blocks run or
// have run when this kernel starts, or for merges, which running blocks have taken: none waits
// forever.
template <DataType kIn>
__global__ void __launch_bounds__(StripBlock::kThreads, StripBlock::kBlocks)
    normalize_strips(__grid_constant__ NormalizeStripsParams const params) {
  __shared__ int taken;
  __shared__ MergeSums sums;
  __shared__ StripMaps maps;
  bool const first_thread = threadIdx.x + threadIdx.y == 0;
  int const columns = int(params.merge.x.columns);
  int mapped = -1;  // the strip whose maps are there
  while (true) {
    if (first_thread) taken = int(atomicAdd(params.counters.next, 1u));
    __syncthreads();
    int const unit = taken;
    if (unit >= params.units.count()) break;
    auto const [strip, part, merges] = params.units.find(unit);
    bool const waits = strip < params.units.strips && (merges || strip != mapped);
    if (first_thread && waits) {
      int const width = min(columns - strip * kColumnsOfStrip, kColumnsOfStrip);
      int const tiles = (width + params.tile_columns - 1) / params.tile_columns;
      wait_until(merges ? &params.counters.tiles[strip] : &params.counters.merged[strip],
                 merges ? unsigned(tiles * params.merge.ranges.count) : StripBlock::kMerges);
    }
    __syncthreads();
    if (strip >= params.units.strips) continue;
    if (merges) {
      int const n = strip * kColumnsOfStrip + part * StripBlock::kLanes + threadIdx.x;
      MergePlace const place{int(threadIdx.x), int(threadIdx.y)};
      if (merge_columns<false, true>(params.merge, n, place, params.reciprocal, sums)) {
        move_to_first_shift<4>(params.merge, n, place.slice);
      }
      __syncthreads();
      if (first_thread) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(&params.counters.merged[strip])
                     : "memory");
      }
    } else {
      if (strip != mapped) {
        load_maps(params, strip, maps);
        mapped = strip;
        __syncthreads();
      }
      normalize_chunk<kIn>(params, strip, part, maps);
    }
  }
  // The kernel behind this one waits for this one alone.
  wait_for_previous_kernel();
}

}  // namespace cutlass_fused
