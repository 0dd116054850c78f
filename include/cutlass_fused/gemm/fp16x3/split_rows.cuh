// Splits rows of fp32 numbers into fp16 numbers; split_rows.hpp has the formula.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/softmax/reduce_row.cuh"
#include "cutlass_fused/gemm/fp16x3/split_numbers.cuh"

namespace cutlass_fused {

// Threads of a row in x, rows in y.
struct SplitBlock {
  static constexpr int kThreads = 256;
  static constexpr int kWidth = kSplitWidth;
  // So many times kWidth numbers stay in a thread's registers between the two passes: two, but in
  // long rows, all of whose threads read more. What hides the latency of memory is how much is on
  // its way, with all blocks of an SM.
  static constexpr int kHeld = 2, kHeldOfLong = 4;
  static constexpr int64_t kLong = int64_t(kThreads) * kWidth * kHeld;
  static constexpr int blocks_per_sm(int held, bool wide) {
    return (held > kHeld ? 3 : 4) - (wide ? 1 : 0);
  }
};

struct TakeLargest {
  __device__ __forceinline__ unsigned operator()(unsigned a, unsigned b) const { return max(a, b); }
};

template <bool kAligned>
__device__ __forceinline__ void load_piece(float const* row, int64_t first, int64_t k,
                                           float (&to)[SplitBlock::kWidth]) {
  constexpr int kWidth = SplitBlock::kWidth;
  if (kAligned && first + kWidth <= k) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      *reinterpret_cast<float4*>(&to[i]) = *reinterpret_cast<float4 const*>(row + first + i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = first + i < k ? row[first + i] : 0.0f;
  }
}

// By one thread of so many.
__device__ __forceinline__ void clear(ToClear const& matrix, int64_t thread, int64_t threads) {
  for (int64_t i = thread; i < matrix.count; i += threads) matrix.words[i] = 0;
  for (int64_t i = thread; i < matrix.rows; i += threads) matrix.scales[i].packed = 0.0f;
}

// By what a row of numbers is known again: a hash of the bits of a thread's numbers, in order. That
// of a row is the sum over its threads. No bit of a number can change alone: each step can be
// undone, and so can the last one.
class RowMark {
 public:
  __device__ __forceinline__ void add(float number) {
    constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;  // odd, so that no step loses a bit
    bits_ = (bits_ ^ __float_as_uint(number)) * kFactor;
  }

  // In another way in each thread of the row, so that numbers which change places are seen. The
  // last steps are those of SplitMix64 (Steele, Lea and Flood 2014), which mix all bits.
  __device__ __forceinline__ uint64_t of_thread() const {
    uint64_t mixed = bits_ + (threadIdx.x + 1) * uint64_t(0xd1342543de82ef95u);
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
  }

 private:
  uint64_t bits_ = 0;
};

enum class Split {
  kPlain,
  kFolding,   // numbers are multiplied by the squares of params.folded before
  kRenewing,  // rows that have their mark in params.marks are left as they are
};

template <bool kLow, bool kAligned, int kHeld, Split kSplit>
__global__ void __launch_bounds__(SplitBlock::kThreads,
                                  SplitBlock::blocks_per_sm(kHeld,
                                                            kSplit == Split::kFolding && !kAligned))
    split_rows(__grid_constant__ SplitRowsParams const params) {
  constexpr bool kFolds = kSplit == Split::kFolding, kRenews = kSplit == Split::kRenewing;
  if constexpr (!is_compiled<kSplit != Split::kPlain>()) return;
  constexpr int kWidth = SplitBlock::kWidth;
  constexpr int kMostRows = SplitBlock::kThreads / 32;
  __shared__ RowSlots<unsigned> slots[kMostRows];
  __shared__ RowSlots<uint64_t> lost_slots[kMostRows];
  [[maybe_unused]] __shared__ RowSlots<uint64_t> mark_slots[kRenews ? kMostRows : 1];
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const threads = int64_t(blockDim.x) * blockDim.y;
  clear(params.to_clear, blockIdx.x * threads + threadIdx.y * blockDim.x + threadIdx.x,
        gridDim.x * threads);

  int64_t const step = int64_t(blockDim.x) * kWidth;
  int64_t const row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  bool const exists = row < params.rows;
  float const* const from = params.from + (exists ? row : 0) * params.ld;
  __half* const to = params.to + row * params.pitch;
  int64_t const k = exists ? params.k : 0;
  int64_t end = exists ? params.pitch / (kLow ? 2 : 1) : 0;

  float held[kHeld][kWidth];
  unsigned largest = 0;
  float others = 0.0f;  // what the rows lost that are folded
  unsigned cut = 0;     // numbers that are no fp32 numbers when they are multiplied
  [[maybe_unused]] Folded const folded(kFolds ? params.folded[0] : RowScale{1.0f});
  auto const fold = [&]([[maybe_unused]] float (&piece)[kWidth], [[maybe_unused]] int64_t at) {
    if constexpr (kFolds) {
      alignas(16) RowScale scales[kWidth];
      load_scales(params.folded, at, k, scales);
      bool has_lost = false, is_cut = false;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        has_lost |= scales[i].has_lost();
        piece[i] = Folded::multiply(piece[i], folded.ratio(scales[i]), is_cut);
      }
      if (is_cut) cut += kWidth;
      if (!has_lost) return;
#pragma unroll
      for (RowScale const& scale : scales) others += scale.least();
    }
  };
  [[maybe_unused]] RowMark mark;
  auto const take = [&](float const(&piece)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      largest = max(largest, magnitude(piece[i]));
      if constexpr (kRenews) mark.add(piece[i]);
    }
  };
  int64_t const first = int64_t(threadIdx.x) * kWidth;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) load_piece<kAligned>(from, first + i * step, k, held[i]);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    fold(held[i], first + i * step);
    take(held[i]);
  }
  // What no thread holds, it reads twice.
  constexpr bool kIsLong = kHeld == SplitBlock::kHeldOfLong;
  for (int64_t at = first + kHeld * step; kIsLong && at < k; at += step) {
    float piece[kWidth];
    load_piece<kAligned>(from, at, k, piece);
    fold(piece, at);
    take(piece);
  }
  largest = reduce_row(largest, slots[threadIdx.y], 0u, TakeLargest{});
  [[maybe_unused]] uint64_t mark_of_row = 0;
  bool is_split = !exists;
  if constexpr (kRenews) {
    mark_of_row = reduce_row(mark.of_thread(), mark_slots[threadIdx.y], uint64_t(0), TakeSum{});
    is_split |= !params.is_new && exists && params.marks[row] == mark_of_row;
    if (is_split) end = 0;
  }

  RowPower const power(largest);
  RowSplit<kLow> const split(power);
  static_assert(kHeld * kWidth <= Loss<kLow>::kMostNumbers);
  __half* const own = to + find_place<kLow>(first);  // as steps are of whole blocks
  Loss<kLow> of_held;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (first + i * step >= end) continue;
    store_piece(held[i], split, own + i * step * (kLow ? 2 : 1), of_held);
  }
  uint64_t lost = of_held.units();
  if constexpr (kFolds)
    lost += Loss<kLow>::units_of(others) + cut * Loss<kLow>::units_of_cut(power);
  for (int64_t at = first + kHeld * step; kIsLong && at < end; at += step) {
    float piece[kWidth];
    load_piece<kAligned>(from, at, k, piece);
    fold(piece, at);
    Loss<kLow> of_piece;
    store_piece(piece, split, to + find_place<kLow>(at), of_piece);
    lost += of_piece.units();
  }
  lost = reduce_row(lost, lost_slots[threadIdx.y], uint64_t(0), TakeSum{});
  if (!is_split && threadIdx.x == 0) {
    if constexpr (kRenews) params.marks[row] = mark_of_row;
    params.scales[row] = Loss<kLow>::make_scale(kFolds ? folded.find_row(power) : power, lost);
  }
}

}  // namespace cutlass_fused
