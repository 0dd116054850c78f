// Splits a matrix that lies along M or N into the rows that split_rows.hpp describes.
//
// What a number is scaled by depends on the largest one of its row. Where K is short, a tile has
// whole rows, and a block measures and splits it. Where it is not, blocks measure tiles, and split
// each of them a while later, when all of its rows are measured. It is still in the L2 cache then.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/fp16x3/split_tile.cuh"

namespace cutlass_fused {

template <bool kLow, bool kAligned, bool kFolds>
__global__ void __launch_bounds__(ColumnsBlock::kThreads,
                                  ColumnsBlock::blocks_per_sm(kAligned, true) - kFolds)
    split_short_columns(__grid_constant__ SplitRowsParams const matrix) {
  if constexpr (!is_compiled<kFolds>()) return;
  using Splitter = ColumnsSplitter<kLow, kAligned, kFolds>;
  using Piece = typename Splitter::Piece;
  constexpr int kRows = ColumnsBlock::kRows, kDepth = ColumnsBlock::kDepth;
  __shared__ ColumnsShared shared;
  __shared__ unsigned row_largest[kRows];
  wait_for_previous_kernel();
  allow_next_kernel();
  Splitter const splitter{matrix, shared, int64_t(blockIdx.x) * kRows};

  Folded const folded(kFolds ? matrix.folded[0] : RowScale{1.0f});
  Piece piece;
  unsigned largest[Piece::kWidth] = {};
  bool loses = false;
  int64_t k0 = 0;
  for (;; k0 += kDepth) {
    loses |= splitter.load(piece, folded, k0);
    piece.measure(largest);
    if (k0 + kDepth >= matrix.k) break;
  }
  splitter.write_largest(largest);
  __syncthreads();
  if (threadIdx.x < kRows) row_largest[threadIdx.x] = splitter.join_largest();
  __syncthreads();
  RowPower const power(row_largest[Splitter::own_row()]);

  // Backwards: the last tile is in registers still.
  uint64_t lost = 0;
  for (;; k0 -= kDepth) {
    splitter.write_tile(piece);
    bool const any_loses = Splitter::wait_for_tile(loses);
    if (k0 > 0) splitter.load(piece, folded, k0 - kDepth);
    lost += splitter.split_tile(k0, power, any_loses);
    if (k0 == 0) break;
    __syncthreads();
  }
  lost = Splitter::join_lost(lost);
  if (splitter.exists() && Splitter::is_first()) {
    matrix.scales[splitter.row0 + Splitter::own_row()] =
        Loss<kLow>::make_scale(kFolds ? folded.find_row(power) : power, lost);
  }
}

struct SplitColumnsParams {
  SplitRowsParams matrix;
  ColumnsWorkspace workspace;
  unsigned depth;   // tiles along K
  unsigned panels;  // of rows: tiles side by side
  unsigned lead;    // by so many tiles measuring is ahead of splitting
};

// Where a tile lies. Tiles of a few panels lie next to each other in memory, and follow each other:
// what is read at the same time are long pieces of it.
struct TilePlace {
  unsigned panel, step;  // along K

  __device__ __forceinline__ TilePlace(unsigned tile, unsigned depth, unsigned panels) {
    unsigned const of_group = SplitTile::kPanels * depth;
    unsigned const first = tile / of_group * SplitTile::kPanels, within = tile % of_group;
    unsigned const side_by_side = min(SplitTile::kPanels, panels - first);
    panel = first + within % side_by_side;
    step = within / side_by_side;
  }
};

// What a block shall do next.
struct ColumnsTask {
  bool splits;  // else it measures
  unsigned tile;

  // Measuring, then both in turn, then splitting. A ticket is drawn by a block that runs, and waits
  // for lower ones alone: it does not matter how many blocks run.
  __device__ __forceinline__ ColumnsTask(unsigned ticket, unsigned tiles, unsigned lead) {
    unsigned const both = ticket - lead;
    splits = ticket >= lead && (ticket >= 2 * tiles - lead || both % 2 == 1);
    if (ticket < lead) {
      tile = ticket;
    } else if (ticket >= 2 * tiles - lead) {
      tile = ticket - tiles;
    } else {
      tile = both / 2 + (splits ? 0 : lead);
    }
  }
};

__device__ __forceinline__ void wait_until(unsigned const* counter, unsigned count) {
  for (;;) {
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    if (now >= count) return;
    __nanosleep(50);
  }
}

template <bool kLow, bool kAligned, bool kFolds>
__global__ void __launch_bounds__(ColumnsBlock::kThreads,
                                  ColumnsBlock::blocks_per_sm(kAligned, false))
    split_columns(__grid_constant__ SplitColumnsParams const params) {
  if constexpr (!is_compiled<kFolds>()) return;
  using Block = ColumnsBlock;
  using Splitter = ColumnsSplitter<kLow, kAligned, kFolds>;
  using Piece = typename Splitter::Piece;
  __shared__ ColumnsShared shared;
  __shared__ unsigned tickets[2];
  wait_for_previous_kernel();
  allow_next_kernel();
  SplitRowsParams const& matrix = params.matrix;
  ColumnsWorkspace const& workspace = params.workspace;
  unsigned const tiles = params.panels * params.depth;
  Folded const folded(kFolds ? matrix.folded[0] : RowScale{1.0f});

  unsigned next = threadIdx.x == 0 ? atomicAdd(workspace.ticket, 1u) : 0;
  for (int turn = 0;; turn ^= 1) {
    if (threadIdx.x == 0) {
      tickets[turn] = next;
      next = atomicAdd(workspace.ticket, 1u);
    }
    __syncthreads();
    if (tickets[turn] >= 2 * tiles) return;
    ColumnsTask const task(tickets[turn], tiles, params.lead);
    TilePlace const place(task.tile, params.depth, params.panels);
    unsigned const panel = place.panel;
    int64_t const k0 = int64_t(place.step) * Block::kDepth;
    Splitter const splitter{matrix, shared, int64_t(panel) * Block::kRows};
    Piece piece;
    bool const loses = splitter.load(piece, folded, k0);

    if (!task.splits) {
      unsigned largest[Piece::kWidth] = {};
      piece.measure(largest);
      splitter.write_largest(largest);
      __syncthreads();
      if (threadIdx.x < Block::kRows) {
        unsigned const of_row = splitter.join_largest();
        if (of_row > 0) atomicMax(&workspace.largest[splitter.row0 + threadIdx.x], of_row);
        __syncwarp();
        if (Splitter::lane() == 0) {
          __threadfence();
          atomicAdd(&workspace.measured[panel], 1u);
        }
      }
      continue;
    }

    // While the tile is on its way.
    if (threadIdx.x == 0) {
      wait_until(&workspace.measured[panel], Block::kMeasurers * params.depth);
    }
    splitter.write_tile(piece);
    bool const any_loses = Splitter::wait_for_tile(loses);
    int64_t const row = splitter.row0 + Splitter::own_row();
    RowPower const power(__ldcg(&workspace.largest[row]));
    uint64_t const lost = Splitter::join_lost(splitter.split_tile(k0, power, any_loses));
    if (!splitter.exists() || !Splitter::is_first() || (lost == 0 && k0 > 0)) continue;
    // The sums of a row grow, and with them its scale as an integer: the largest is that of all.
    uint64_t total = 0;
    if (lost > 0) {
      static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
      auto* const sum = reinterpret_cast<unsigned long long*>(&workspace.lost[row]);
      total = atomicAdd(sum, static_cast<unsigned long long>(lost)) + lost;
    }
    RowScale const scale = Loss<kLow>::make_scale(kFolds ? folded.find_row(power) : power, total);
    atomicMax(reinterpret_cast<unsigned*>(&matrix.scales[row]), __float_as_uint(scale.packed));
  }
}

// What split_columns joins, it finds as zeros.
static __global__ void __launch_bounds__(ColumnsBlock::kThreads)
    clear_columns(unsigned* workspace, int64_t words, RowScale* scales, int64_t rows) {
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const at = int64_t(blockIdx.x) * ColumnsBlock::kThreads + threadIdx.x;
  if (at < words) workspace[at] = 0;
  if (at < rows) scales[at].packed = 0.0f;
}

}  // namespace cutlass_fused
