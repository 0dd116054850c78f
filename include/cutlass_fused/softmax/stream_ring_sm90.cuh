// The shared memory of a block that streams rows: a ring of chunks, and the part of a row in it.
#pragma once

#include "cutlass_fused/common/piece.cuh"

namespace cutlass_fused {

// What a block of SM90 may have, and what is left of it to the barriers and slots.
constexpr int kStreamSharedBytes = 227 * 1024;
constexpr int kStreamControlBytes = 2048;
// The most blocks of a cluster, on any GPU.
constexpr int kMostStreamBlocks = 8;
constexpr int kLineBytes = 128;

// Groups of threads, and the pieces of 16 bytes of each chunk that a thread of a group handles. The
// other groups keep the SM busy while one reduces a row. On an H200 this was the fastest over all
// of 17000 to 131072 columns, before 192 to 512 threads, 3 and 4 pieces, and 1, 2 and 4 groups.
struct StreamShape {
  static constexpr int kGroups = 3, kThreads = 256, kPieces = 2;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kAllThreads = kGroups * kThreads + 32;  // with the warp that fills the ring
  static constexpr int kChunkPieces = kThreads * kPieces;
  static constexpr int kChunkBytes = kChunkPieces * 16;
  // Chunks that are asked for at a time. Fewer do not cover the latency. With more, DRAM has more
  // pages to open: copies of rows of 201028 bytes in this pattern took 441 us with 48 KB of
  // them, and 449 us with all of the ring.
  static constexpr int kAhead = 7;
  static constexpr int kSlots = (kStreamSharedBytes - kStreamControlBytes) / kChunkBytes;
  static constexpr int kRingBytes = kSlots * kChunkBytes;
  static_assert(kAllThreads <= 1024 && kWarps <= 16 && kAhead < kSlots);
};

// What the blocks of a cluster tell each other of a row: 16 bytes, which are sent as two words.
struct alignas(16) StreamPart {
  double sum;
  float max;
};

template <class Sum>
struct StreamControl {
  using Shape = StreamShape;
  uint64_t full[Shape::kSlots], empty[Shape::kSlots];
  uint64_t read[Shape::kGroups];  // when a group has added up a row
  // Barriers for two rows: a block may be one row of its group ahead of another one, but not two.
  uint64_t arrived[Shape::kGroups][2];
  StreamPart parts[Shape::kGroups][2][kMostStreamBlocks];
  float max_slots[Shape::kGroups][Shape::kWarps];
  Sum sum_slots[Shape::kGroups][Shape::kWarps];
};

// Where chunk `number` of a block lies, and the parity of the phase in which it is there.
struct RingPosition {
  int slot, parity;

  __device__ __forceinline__ explicit RingPosition(int number)
      : slot(number % StreamShape::kSlots), parity(number / StreamShape::kSlots % 2) {}

  __device__ __forceinline__ void advance() {
    if (++slot == StreamShape::kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// What of a row lies in this block's slice, in pieces of 16 bytes; piece 0 begins `shift` elements
// in front of the row, on a line of L2: a warp that moves 512 bytes then touches four lines, not
// five, which took 2% off a copy of rows that begin elsewhere.
template <int kWidth>
struct StreamSlice {
  int shift, columns;
  int begin, end;              // this block's pieces
  int whole_begin, whole_end;  // those of the row that lie in it as a whole

  template <class T>
  __device__ __forceinline__ StreamSlice(T const* x, int columns, int slice, int rank)
      : shift(int(reinterpret_cast<uintptr_t>(x) % kLineBytes / sizeof(T))),
        columns(columns),
        begin(rank * slice) {
    int const pieces = (columns + shift + kWidth - 1) / kWidth;
    end = min(begin + slice, pieces);
    whole_begin = (shift + kWidth - 1) / kWidth;
    whole_end = (columns + shift) / kWidth;
  }

  __device__ __forceinline__ int column(int piece) const { return piece * kWidth - shift; }
  __device__ __forceinline__ bool is_whole(int piece) const {
    return piece >= whole_begin && piece < min(whole_end, end);
  }
  __device__ __forceinline__ bool holds(int piece, int i) const {
    return piece < end && unsigned(column(piece) + i) < unsigned(columns);
  }
};

}  // namespace cutlass_fused
