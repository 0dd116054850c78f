// What a map of normalization.hpp has for the columns of a block, in shared memory: each is fetched
// and converted once, whatever its vectors are, and read by the threads of all rows.
#pragma once

#include "cutlass_fused/common/piece.cuh"

namespace cutlass_fused {

template <class Map, int kColumns, int kWidth, Access kAccess>
class BlockColumns {
  using Column = typename Map::Column;
  static constexpr int kFields = sizeof(Column) / sizeof(float);
  static constexpr bool kAligned = kAccess == Access::kAligned;
  // A shifted row's first piece begins in front of the block.
  static constexpr int kInFront = kAccess == Access::kShifted ? kWidth - 1 : 0;
  static constexpr int kCount = kColumns + kInFront;

  // A shifted piece is read one element at a time, kWidth apart from thread to thread: a word of
  // padding behind every 32 keeps these in different banks.
  __device__ __forceinline__ static int slot(int i) { return kAligned ? i : i + i / 32; }
  alignas(16) float fields_[kFields][kCount + (kAligned ? 0 : kCount / 32)];

 public:
  // Columns from `base` on, by kThreads threads, before a barrier. All columns are asked for
  // before one is waited for.
  template <int kThreads>
  __device__ __forceinline__ void fill(Map const& map, int base, int columns, int thread) {
    constexpr int kRounds = (kCount + kThreads - 1) / kThreads;
    typename Map::Raw raw[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      int const i = r * kThreads + thread;
      if (i < kCount) raw[r] = map.fetch(min(max(base - kInFront + i, 0), columns - 1));
    }
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      int const i = r * kThreads + thread;
      if (i >= kCount) break;
      Column const column = map.convert(raw[r]);
      float fields[kFields];
      memcpy(fields, &column, sizeof column);
#pragma unroll
      for (int f = 0; f < kFields; ++f) fields_[f][slot(i)] = fields[f];
    }
  }

  __device__ __forceinline__ void read(Piece<kWidth, kAccess> const& piece, int base,
                                       Column (&to)[kWidth]) const {
    alignas(16) float fields[kFields][kWidth];
#pragma unroll
    for (int f = 0; f < kFields; ++f) {
      if constexpr (kAligned) {
#pragma unroll
        for (int i = 0; i < kWidth; i += 4) {
          *reinterpret_cast<float4*>(&fields[f][i]) =
              *reinterpret_cast<float4 const*>(&fields_[f][piece.first - base + i]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          fields[f][i] = fields_[f][slot(piece.column(i) - base + kInFront)];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float column[kFields];
#pragma unroll
      for (int f = 0; f < kFields; ++f) column[f] = fields[f][i];
      memcpy(&to[i], column, sizeof column);
    }
  }
};

}  // namespace cutlass_fused
