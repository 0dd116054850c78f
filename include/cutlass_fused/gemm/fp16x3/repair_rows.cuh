// Computes in plain fp32 what a product of split rows could not: outputs that are NaN now, and to
// which a row belongs that lost something.
#pragma once

#include <algorithm>

#include "cutlass_fused/epilogue/elements/evaluate.hpp"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/softmax/reduce_row.cuh"
#include "cutlass_fused/gemm/simt/block.cuh"
#include "cutlass_fused/common/store.cuh"
#include "cutlass_fused/gemm/fp16x3/repair_rows.hpp"

namespace cutlass_fused {

template <class Epilogue>
struct RepairRowsParams {
  GemmArgs gemm;
  StridedReader x, weight;
  typename Evaluator<typename Epilogue::Tree>::Arguments operands;
  RowScale const *x_scales, *weight_scales;
  SplitReader split_weight;  // where gemm.weight is null
};

// Which outputs of a tile are to be computed: a bit each, 32 columns in a word.
template <class Block>
struct RepairMask {
  static constexpr int kWords = Block::kColumns / 32;

  unsigned words[Block::kRows][kWords];

  __device__ bool has(int row, int column) const {
    return words[row][column / 32] >> column % 32 & 1;
  }
};

template <class Block>
union RepairShared {
  typename Block::Shared operands;
  float sums[Block::kRows][Block::kColumns];
};

// One sum of products by a warp, in all of its lanes.
template <class X, class Weight>
__device__ __forceinline__ float multiply_rows(int64_t depth, X const& x, Weight const& weight,
                                               int64_t m, int64_t n) {
  constexpr int kTerms = 64;  // of a lane in a sum of their own
  float sum = 0.0f, part = 0.0f;
  int terms = 0;
#pragma unroll 4
  for (int64_t k = threadIdx.x % 32; k < depth; k += 32) {
    part = fmaf(x(m, k), weight(n, k), part);
    if (++terms % kTerms == 0) {
      sum += part;
      part = 0.0f;
    }
  }
  return reduce_warp(sum + part, TakeSum{});
}

template <class Epilogue, class Block = SimtBlock>
struct RepairTile {
  using Mask = RepairMask<Block>;
  using Shared = RepairShared<Block>;
  static constexpr int kRows = Block::kRows, kColumns = Block::kColumns;
  static constexpr int kWarps = Block::kThreads / 32;

  RepairRowsParams<Epilogue> const& params;
  Mask& mask;
  int64_t m0, n0;

  // The rows of x and of weight that a tile multiplies, and whether the i-th of them lost
  // something.
  static constexpr int kOperandRows = kRows + kColumns;
  __device__ bool has_lost(int i) const {
    return i < kRows ? lost_something(params.x_scales, m0 + i, params.gemm.m)
                     : lost_something(params.weight_scales, n0 + i - kRows, params.gemm.n);
  }

  __device__ void repair(Shared& shared) const {
    if (params.gemm.weight == nullptr) {
      repair_with(params.split_weight, shared);
    } else {
      repair_with(params.weight, shared);
    }
  }

 private:
  static constexpr int kFew = 512;

  template <class Weight>
  __device__ void repair_with(Weight const& weight, Shared& shared) const {
    int const count = find();
    if (count > kFew) {
      repair_many(weight, shared);
    } else if (count > 0) {
      repair_few(weight);
    }
    __syncthreads();
  }

  // Fills the mask; returns how many outputs it names.
  __device__ int find() const {
    int const warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    int count = 0;
    for (int i = warp; i < kRows * Mask::kWords; i += kWarps) {
      int const row = i / Mask::kWords, word = i % Mask::kWords;
      unsigned const bits = __ballot_sync(0xffffffffu, is_missing(m0 + row, n0 + word * 32 + lane));
      if (lane == 0) mask.words[row][word] = bits;
      count += __syncthreads_count(lane < __popc(bits));
    }
    return count;
  }

  // Each by a warp.
  template <class Weight>
  __device__ void repair_few(Weight const& weight) const {
    int const warp = int(threadIdx.x) / 32;
    int index = 0;
    for (int row = 0; row < kRows; ++row) {
      for (int word = 0; word < Mask::kWords; ++word) {
        for (unsigned bits = mask.words[row][word]; bits != 0; bits &= bits - 1) {
          if (index++ % kWarps != warp) continue;
          int64_t const m = m0 + row, n = n0 + word * 32 + __ffs(int(bits)) - 1;
          float const sum = multiply_rows(params.gemm.k, params.x, weight, m, n);
          if (threadIdx.x % 32 == 0) store(m, n, sum);
        }
      }
    }
  }

  // All of the tile, of which those are stored: through shared memory, as the code of an epilogue
  // for each of a thread's sums would take more registers than there are.
  template <class Weight>
  __device__ void repair_many(Weight const& weight, Shared& shared) const {
    typename Block::Sums acc = {};
    Block::multiply(params.gemm, params.x, weight, m0, n0, shared.operands, acc);
#pragma unroll
    for (int i = 0; i < Block::kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < Block::kOwnColumns; ++j) {
        shared.sums[Block::row(i)][Block::column(j)] = acc[i][j];
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = int(threadIdx.x); i < kRows * kColumns; i += Block::kThreads) {
      int const row = i / kColumns, column = i % kColumns;
      if (mask.has(row, column)) store(m0 + row, n0 + column, shared.sums[row][column]);
    }
  }

  __device__ static bool lost_something(RowScale const* scales, int64_t row, int64_t rows) {
    return row < rows && scales[row].least() > 0.0f;
  }

  __device__ bool is_missing(int64_t m, int64_t n) const {
    GemmArgs const& gemm = params.gemm;
    if (m >= gemm.m || n >= gemm.n) return false;
    if (!isnan(Vector{gemm.y, 1, gemm.y_type, 0.0f}(m * gemm.ldy + n))) return false;
    return params.x_scales[m].least() > 0.0f || params.weight_scales[n].least() > 0.0f;
  }

  __device__ void store(int64_t m, int64_t n, float sum) const {
    GemmArgs const& gemm = params.gemm;
    float const value = Evaluator<typename Epilogue::Tree>::apply(params.operands, sum, m, n);
    store_from_float(gemm.y, m * gemm.ldy + n, gemm.y_type, value);
  }
};

constexpr int kRepairBlocksPerSm = 2;

template <class Epilogue>
__global__ void __launch_bounds__(SimtBlock::kThreads, kRepairBlocksPerSm)
    repair_rows(__grid_constant__ RepairRowsParams<Epilogue> const params) {
  __shared__ RepairShared<SimtBlock> shared;
  __shared__ RepairMask<SimtBlock> mask;
  wait_for_previous_kernel();
  allow_next_kernel();
  SimtTiles const tiles(params.gemm);
  auto const tile_at = [&](int64_t i) {
    return RepairTile<Epilogue>{params, mask, tiles.row(i), tiles.column(i)};
  };
  // Hardly ever has a row lost something: those of all tiles of the block are looked at at once,
  // by threads that share out the tiles.
  constexpr int kRows = RepairTile<Epilogue>::kOperandRows;
  constexpr int kSharers = SimtBlock::kThreads / kRows;
  int const own_row = int(threadIdx.x) % kRows;
  bool lost = false;
#pragma unroll 8
  for (int64_t i = blockIdx.x + int64_t(threadIdx.x / kRows) * gridDim.x; i < tiles.count;
       i += kSharers * gridDim.x) {
    lost |= tile_at(i).has_lost(own_row);
  }
  if (!__syncthreads_or(lost)) return;

  for (int64_t i = blockIdx.x; i < tiles.count; i += gridDim.x) {
    RepairTile<Epilogue> const tile = tile_at(i);
    if (__syncthreads_or(tile.has_lost(own_row))) tile.repair(shared);
  }
}

template <class Epilogue>
RepairRowsParams<Epilogue> make_repair_params(GemmArgs const& gemm,
                                              typename Epilogue::Args const& epilogue,
                                              SplitMatrix const& x, SplitMatrix const& weight) {
  return {gemm,
          {gemm.x, gemm.ldx, gemm.x_major},
          {gemm.weight, gemm.ldw, gemm.weight_major},
          Evaluator<typename Epilogue::Tree>::pack(epilogue.operands()),
          x.scales,
          weight.scales,
          SplitReader{weight, weight.layout.pitch()}};
}

template <class Epilogue>
Status run_repair_rows(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                       SplitMatrix const& x, SplitMatrix const& weight, Device const& device,
                       cudaStream_t stream) {
  auto const params = make_repair_params<Epilogue>(gemm, epilogue, x, weight);
  // As many blocks as are resident: each looks at its tiles once.
  int64_t const resident = kRepairBlocksPerSm * device.sm_count;
  dim3 const grid(unsigned(std::min(SimtTiles(gemm).count, resident)));
  return KernelLaunch{device, stream, grid, dim3(SimtBlock::kThreads)}(repair_rows<Epilogue>,
                                                                       params);
}

}  // namespace cutlass_fused
