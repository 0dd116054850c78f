// Row softmax with one read and one write:  y[m, :] = softmax(v[m, :]),  v = prologue(x)
//
// A row stays in the registers of a warp or of a block. (Short ones of fp32: row_softmax_short.cuh.
// Wider ones lie in shared memory, of one block in row_softmax_wide.cuh, of a cluster in
// row_softmax_stream_sm90.cuh.) Each warp subtracts the maximum of its own part, so that the warps
// meet once. A row with a NaN or +inf, or of nothing but -inf, becomes NaN as in PyTorch: so does
// its sum or a ratio.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/norm/columns_of_piece.cuh"
#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/softmax/reduce_row.cuh"
#include "cutlass_fused/softmax/row_exponentials.cuh"
#include "cutlass_fused/norm/normalization.hpp"

namespace cutlass_fused {

template <class Prologue>
struct RowSoftmaxParams {
  void const* x;
  int64_t ldx;
  void* y;
  int64_t rows, columns;  // 2^30 of each at most
  Prologue prologue;
  BehindKernel behind = {};  // a merge: x is read at once
};

// The registers of a row: elements per thread, the most threads, blocks per SM where kHasRegisters
// holds. A thread also holds a prologue's values for its columns and, where a block goes on from
// row to row, as many elements of the next one.
struct FewElements {
  static constexpr int kElements = 8, kThreads = 256, kBlocks = 5;
  static constexpr bool kGoesOn = true, kSharesRow = true;
};
struct MoreElements {
  static constexpr int kElements = 16, kThreads = 512, kBlocks = 2;
  static constexpr bool kGoesOn = true, kSharesRow = true;
};
struct ManyElements {
  static constexpr int kElements = 32, kThreads = 512, kBlocks = 1;
  static constexpr bool kGoesOn = true, kSharesRow = true;
};
// A row to each warp of a small block, which does not go on: on an H200 1 to 3% faster.
template <class Shape>
struct OneRow {
  static constexpr int kElements = Shape::kElements, kThreads = 64, kBlocks = 16;
  static constexpr bool kGoesOn = false, kSharesRow = false;
};

// Whether a thread keeps a prologue's values for its columns.
template <class Prologue>
constexpr bool kHasColumns = !std::is_empty_v<typename Prologue::Column>;

// Columns to keep take registers. Results of fp32 do, for their exponentials: then also a factor,
// and the addresses of elements that are loaded one by one. With columns a grid is as large as so
// many blocks: if more fit on an SM, those that the kernel before leaves first get them, others
// none.
template <DataType kIn, DataType kOut, class Prologue, Access kAccess>
constexpr bool kHasRegisters =
    !kHasColumns<Prologue> &&
    (kOut != DataType::kFloat32 ||
     (kAccess != Access::kElements && (kIn != kOut || std::is_same_v<Prologue, Identity>)));
template <DataType kIn, DataType kOut, class Prologue, class Shape, Access kAccess>
constexpr int kResidentBlocks =
    kHasRegisters<kIn, kOut, Prologue, kAccess> ? Shape::kBlocks : (Shape::kBlocks + 1) / 2;

// What a warp knows of its part of a row: its maximum, and the sum of exp(v - maximum).
template <DataType kOut>
struct RowPart {
  RowSum<kOut> sum;
  float max;
};

// The parts of two rows, one after the other: a barrier between them is enough.
template <DataType kOut>
using RowParts = RowPart<kOut>[2][kMostRowWarps];

// What makes a warp's exponentials those of the whole row, divided by its sum: the warps' parts are
// merged as those of an online softmax (Milakov, Gimelshein: Online normalizer calculation for
// softmax, 2018). All threads of the block must call it. The ratios need no more digits: one
// multiplies both a warp's results and its part of the sum, and cancels in the row's total.
template <DataType kOut>
__device__ __forceinline__ RowSum<kOut> find_factor(RowPart<kOut> const& own,
                                                    RowPart<kOut> (&parts)[kMostRowWarps]) {
  int const warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warps == 1) return reciprocal(own.sum);
  if (lane == 0) parts[warp] = own;
  __syncthreads();
  int const slot = lane % kMostRowWarps;  // both halves of a warp merge all of them
  RowPart<kOut> const part = slot < warps ? parts[slot] : RowPart<kOut>{{}, -INFINITY};
  float const max = reduce_warp(part.max, TakeMax{});
  auto const ratio = [&](float of) { return exponential<kOut>(of - max); };
  RowSum<kOut> const sum =
      reduce_warp<kMostRowWarps>(part.sum * ratio(part.max), ByShuffles<TakeSum>{});
  return reciprocal(sum) * ratio(own.max);
}

// blockDim = (threads of a row, a whole number of warps; rows of a block: one if a row has more
// warps than one).
template <DataType kIn, DataType kOut, class Prologue, class Shape, Access kAccess>
__global__ void __launch_bounds__(Shape::kThreads,
                                  kResidentBlocks<kIn, kOut, Prologue, Shape, kAccess>)
    row_softmax(__grid_constant__ RowSoftmaxParams<Prologue> const params) {
  // Shifted rows took from 4% less time than elements one by one to a third more, on an H200 with
  // 1001 to 10001 columns: the ends of their pieces cost more than wide accesses save.
  static_assert(kAccess != Access::kShifted);
  using In = Storage<kIn>;
  using Out = Storage<kOut>;
  constexpr int kWidth = kPieceWidth<kIn>;
  constexpr int kPieces = Shape::kElements / kWidth;
  static_assert(32 * Shape::kElements <= kMostAddedUp);
  __shared__ RowParts<kOut> parts;
  int const columns = int(params.columns);
  // Those of a warp are neighbours: their addresses differ by constants.
  int const base = threadIdx.x / 32 * kPieces * 32 * kWidth;
  auto const piece = [&](int p) {
    return Piece<kWidth, kAccess>(base + p * 32 * kWidth, threadIdx.x % 32);
  };

  alignas(16) In raw[kPieces][kWidth];
  int const rows = int(params.rows);
  auto const load = [&](int row) {
    if (row >= rows) return;
    In const* const x = static_cast<In const*>(params.x) + row * params.ldx;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      piece(p).template load<kHasColumns<Prologue>>(x, columns, raw[p]);
    }
  };

  // Rows of the block: all its threads make the same number of rounds.
  int const step = gridDim.x * blockDim.y;
  int const first = blockIdx.x * blockDim.y;
  bool const x_is_ready = kHasColumns<Prologue> && params.behind.merges;
  if (!x_is_ready) wait_for_previous_kernel();
  load(first + threadIdx.y);
  if (x_is_ready) wait_for_previous_kernel();
  // The block's rows share them.
  float const factor = params.prologue.factor();
  typename Prologue::Raw asked[kPieces][kWidth];
  typename Prologue::Column kept[kPieces][kWidth];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) fetch_columns(params.prologue, piece(p), columns, asked[p]);
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    convert_columns(params.prologue, piece(p), columns, asked[p], kept[p]);
  }
  if constexpr (kHasColumns<Prologue> && size_of(kIn) == 2) {
    bool moved = false;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) moved |= was_moved(params.behind.moved, piece(p), columns);
    if (moved) load(first + threadIdx.y);
  }

  // Rounded also where no choice stands between the product and what is subtracted from it.
  auto const scale = [&](float x) {
    return kAccess == Access::kWhole ? scale_by<Prologue>(x, factor) : x * factor;
  };

  for (int round = 0; first + round * step < rows; ++round) {
    int const row = first + round * step + threadIdx.y;
    float v[kPieces][kWidth];
    float max = -INFINITY;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        bool const holds = piece(p).holds(i, columns);
        v[p][i] = holds ? scale(kept[p][i](to_float(raw[p][i]))) : -INFINITY;
        max = TakeRowMax<kOut>{}(max, v[p][i]);
      }
    }
    if (Shape::kGoesOn) load(row + step);  // while this one is computed
    max = reduce_warp(max, TakeRowMax<kOut>{});

    // Columns beyond the last add 0, as -inf does: exp(-inf - -inf) would be NaN.
    float const subtrahend = max == -INFINITY ? 0.0f : max;
    // Two of which none waits for the other, where there are registers for them.
    constexpr int kRegisters =
        65536 / (Shape::kThreads * kResidentBlocks<kIn, kOut, Prologue, Shape, kAccess>);
    ThreadSum<kOut, 6 * Shape::kElements <= kRegisters ? 2 : 1> thread_sum;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) exponentiate<kOut>(v[p], subtrahend, thread_sum);
    RowSum<kOut> const sum = thread_sum.add_up(max, TakeSum{});

    Out* const y = static_cast<Out*>(params.y) + int64_t(row) * columns;
    MultiplyBy<kOut> const divide(
        Shape::kSharesRow ? find_factor<kOut>({sum, max}, parts[round % 2]) : reciprocal(sum));
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[p][i] = divide(v[p][i]);
      if (row < rows) piece(p).store(v[p], y, columns);
    }
    if (!Shape::kGoesOn) break;
  }
}

}  // namespace cutlass_fused
