// A tile of a matrix that lies along M or N: what a block reads, transposes in shared memory, and
// splits; split_columns.cuh has the kernels.
#pragma once

#include "cutlass_fused/softmax/reduce_row.cuh"
#include "cutlass_fused/gemm/fp16x3/split_columns.hpp"
#include "cutlass_fused/gemm/fp16x3/split_numbers.cuh"

namespace cutlass_fused {

struct ColumnsBlock {
  static constexpr int kThreads = 256;
  // Their loads under way hide the latency of memory; four leave 64 registers to a thread.
  static constexpr int blocks_per_sm(bool aligned, bool is_short) {
    return 3 + (aligned ? 1 : 0) - (is_short ? 1 : 0);
  }
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRows = SplitTile::kRows, kDepth = SplitTile::kDepth;
  static constexpr int kOwnRows = kRows / kWarps;  // that a warp splits
  static constexpr int kMeasurers = kRows / 32;    // warps that join what the threads measured
};

// The numbers of a tile that a thread reads: some rows side by side, at several k.
template <bool kAligned>
struct ColumnsPiece {
  using Block = ColumnsBlock;
  static constexpr int kWidth = kAligned ? 4 : 1;  // 16 bytes, or one number
  static constexpr int kThreadsAcross = Block::kRows / kWidth;
  static constexpr int kLines = Block::kThreads / kThreadsAcross;  // read at once
  static constexpr int kSteps = Block::kDepth / kLines;

  float held[kSteps][kWidth];

  __device__ __forceinline__ static int row() { return int(threadIdx.x) % kThreadsAcross * kWidth; }
  __device__ __forceinline__ static int line() { return int(threadIdx.x) / kThreadsAcross; }

  __device__ __forceinline__ void load(SplitRowsParams const& matrix, int64_t row0, int64_t k0) {
    int64_t const first = row0 + row();
    float const* const from = matrix.from + (k0 + line()) * matrix.ld + first;
    // Within 32 bits, as most of them are compared.
    int const rows = matrix.rows - first < kWidth ? int(matrix.rows - first) : kWidth;
    int const depth = matrix.k - k0 < Block::kDepth ? int(matrix.k - k0) : Block::kDepth;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      float const* const at = from + step * kLines * matrix.ld;
      bool const is_in = line() + step * kLines < depth;
      if (kAligned && rows == kWidth) {
        *reinterpret_cast<float4*>(held[step]) =
            is_in ? *reinterpret_cast<float4 const*>(at) : float4{};
      } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) held[step][i] = is_in && i < rows ? at[i] : 0.0f;
      }
    }
  }

  // Multiplies what was read by the powers of matrix.folded (split_numbers.cuh). Whether something
  // is lost that does not show in the numbers.
  __device__ __forceinline__ bool fold(SplitRowsParams const& matrix, Folded const& folded,
                                       int64_t k0) {
    bool loses = false;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      int64_t const k = k0 + line() + step * kLines;
      RowScale const scale = k < matrix.k ? matrix.folded[k] : RowScale{1.0f};
      float const ratio = folded.ratio(scale);
      loses |= scale.has_lost();
#pragma unroll
      for (float& number : held[step]) number = Folded::multiply(number, ratio, loses);
    }
    return loses;
  }

  __device__ __forceinline__ void measure(unsigned (&largest)[kWidth]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) largest[i] = max(largest[i], magnitude(held[step][i]));
    }
  }
};

union ColumnsShared {
  using Block = ColumnsBlock;
  static constexpr int kMostLines = 32;

  // The threads of a warp write four rows each, at four k; and read eight k each, of four rows.
  // Both find all banks: pieces of four rows stand where the k says.
  alignas(16) float tile[Block::kDepth * Block::kRows];
  unsigned largest[kMostLines][Block::kRows];

  __device__ __forceinline__ static int index(int k, int row) {
    return k * Block::kRows + 4 * (row / 4 ^ (k / kSplitWidth % 8)) + row % 4;
  }
};

template <bool kLow, bool kAligned, bool kFolds>
struct ColumnsSplitter {
  using Block = ColumnsBlock;
  using Piece = ColumnsPiece<kAligned>;
  static constexpr int kLanes = 8;  // of a row
  static_assert(Block::kOwnRows * kLanes == 32);
  static_assert(Piece::kLines <= ColumnsShared::kMostLines);

  SplitRowsParams const& matrix;
  ColumnsShared& shared;
  int64_t row0;

  __device__ __forceinline__ static int warp() { return int(threadIdx.x) / 32; }
  __device__ __forceinline__ static int lane() { return int(threadIdx.x) % 32; }
  // The row that a thread splits.
  __device__ __forceinline__ static int own_row() {
    return warp() * Block::kOwnRows + lane() / kLanes;
  }
  __device__ __forceinline__ bool exists() const { return row0 + own_row() < matrix.rows; }
  __device__ __forceinline__ static bool is_first() { return lane() % kLanes == 0; }

  // For all threads to write; then those of kMeasurers warps join what they wrote.
  __device__ __forceinline__ void write_largest(unsigned const (&largest)[Piece::kWidth]) const {
#pragma unroll
    for (int i = 0; i < Piece::kWidth; ++i) {
      shared.largest[Piece::line()][Piece::row() + i] = largest[i];
    }
  }
  __device__ __forceinline__ unsigned join_largest() const {
    unsigned largest = 0;
#pragma unroll
    for (int line = 0; line < Piece::kLines; ++line) {
      largest = max(largest, shared.largest[line][threadIdx.x]);
    }
    return largest;
  }

  __device__ __forceinline__ void write_tile(Piece const& piece) const {
#pragma unroll
    for (int step = 0; step < Piece::kSteps; ++step) {
      float* const to =
          &shared.tile[ColumnsShared::index(Piece::line() + step * Piece::kLines, Piece::row())];
      if constexpr (kAligned) {
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<float4 const*>(piece.held[step]);
      } else {
        *to = piece.held[step][0];
      }
    }
  }

  // Reads a tile; whether something is lost of it that does not show in its numbers.
  __device__ __forceinline__ bool load(Piece& piece, [[maybe_unused]] Folded const& folded,
                                       int64_t k0) const {
    piece.load(matrix, row0, k0);
    if constexpr (kFolds) return piece.fold(matrix, folded, k0);
    return false;
  }

  // Between the writes of a tile and the reads of it: whether a thread of the block says so.
  __device__ __forceinline__ static bool wait_for_tile([[maybe_unused]] bool loses) {
    if constexpr (kFolds) return __syncthreads_or(loses);
    __syncthreads();
    return false;
  }

  // Returns what the thread's numbers lost. `loses`: before it, too, they and the rows that are
  // folded.
  __device__ __forceinline__ uint64_t split_tile(int64_t k0, RowPower const& power,
                                                 [[maybe_unused]] bool loses) const {
    constexpr int kStep = kSplitWidth * kLanes;
    static_assert(Block::kDepth / kLanes <= Loss<kLow>::kMostNumbers);
    int const first = lane() % kLanes * kSplitWidth;
    int64_t const left = (exists() ? matrix.pitch / (kLow ? 2 : 1) : 0) - k0 - first;
    float const* const from = &shared.tile[ColumnsShared::index(first, own_row())];
    __half* const to = matrix.to + (row0 + own_row()) * matrix.pitch + find_place<kLow>(k0 + first);
    RowSplit<kLow> const split(power);
    Loss<kLow> lost;
    [[maybe_unused]] uint64_t more = 0;
#pragma unroll
    for (int at = 0; at < Block::kDepth; at += kStep) {
      if (at >= left) continue;
      float piece[kSplitWidth];
#pragma unroll
      for (int i = 0; i < kSplitWidth; ++i) piece[i] = from[(at + i) * Block::kRows];
      store_piece(piece, split, to + find_place<kLow>(at), lost);
      if constexpr (kFolds) {
        if (loses) more += lost_before(k0 + first + at, power);
      }
    }
    return lost.units() + more;
  }

  // Of kSplitWidth k.
  __device__ __forceinline__ uint64_t lost_before(int64_t k, RowPower const& power) const {
    alignas(16) RowScale scales[kSplitWidth];
    load_scales(matrix.folded, k, matrix.k, scales);
    float others = 0.0f;
#pragma unroll
    for (RowScale const& scale : scales) others += scale.least();
    return Loss<kLow>::units_of(others) + kSplitWidth * Loss<kLow>::units_of_cut(power);
  }

  // In all lanes of a row.
  __device__ __forceinline__ static uint64_t join_lost(uint64_t lost) {
    return reduce_warp<kLanes>(lost, TakeSum{});
  }
};

}  // namespace cutlass_fused
