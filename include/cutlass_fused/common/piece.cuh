// A piece of a row: a few elements per thread, in 16-byte accesses where the rows are aligned.
#pragma once

#include <type_traits>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

template <class T>
__device__ __forceinline__ T round_to(float value);
template <>
__device__ __forceinline__ float round_to<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half round_to<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 round_to<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Elements that a thread loads at once: 16 bytes.
template <DataType kIn>
constexpr int kPieceWidth = 16 / size_of(kIn);

// How a warp goes through 32 * kWidth elements of a row.
enum class Access {
  kAligned,   // rows start on 16 bytes and hold a whole number of kWidth elements
  kShifted,   // 16 bytes at a time all the same, from the last such boundary in front of the row on
  kElements,  // one by one, neighbouring threads neighbouring elements
  kWhole,     // as kAligned, and all threads have all elements of all pieces
};

// Elements between the last boundary of 16 bytes and the row.
template <Access kAccess, class T>
__device__ __forceinline__ int find_shift(T const* row) {
  return kAccess == Access::kShifted ? int(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T)) : 0;
}

// kFresh: past L1, for what a kernel that still runs has written (BehindKernel).
template <bool kFresh, class T>
__device__ __forceinline__ T load_global(T const* from) {
  if constexpr (kFresh) return __ldcg(from);
  return *from;
}

// A thread's kWidth columns of those that its warp shares from `base` on; with kShifted the first
// of the warp's is column base - shift. Rows hold 2^30 columns at most, so that a base behind the
// last one does not overflow.
template <int kWidth, Access kAccess>
struct Piece {
  static constexpr int kStep = kAccess == Access::kElements ? 32 : 1;
  int first;

  __device__ __forceinline__ Piece(int base, int lane, int shift = 0)
      : first(kAccess == Access::kElements ? base + lane : base + lane * kWidth - shift) {}

  __device__ __forceinline__ int column(int i) const { return first + i * kStep; }

  __device__ __forceinline__ bool holds(int i, int columns) const {
    switch (kAccess) {
      case Access::kWhole:
        return true;
      case Access::kAligned:  // as a whole or not at all
        return first < columns;
      case Access::kShifted:
        return unsigned(column(i)) < unsigned(columns);
      default:
        return i * kStep < columns - first;
    }
  }

  // Whether all of it is there, to be moved at once.
  __device__ __forceinline__ bool is_whole(int columns) const {
    switch (kAccess) {
      case Access::kWhole:
        return true;
      case Access::kAligned:
        return first < columns;
      case Access::kShifted:
        return first >= 0 && first + kWidth <= columns;
      default:
        return false;
    }
  }

  template <bool kFresh = false, class T>
  __device__ __forceinline__ void load(T const* row, int columns, T (&to)[kWidth]) const {
    T const* const from = row + first;
    if (is_whole(columns)) {
      constexpr int kPerLoad = 16 / int(sizeof(T));
      static_assert(kWidth % kPerLoad == 0);
#pragma unroll
      for (int i = 0; i < kWidth; i += kPerLoad) {
        *reinterpret_cast<uint4*>(&to[i]) =
            load_global<kFresh>(reinterpret_cast<uint4 const*>(from + i));
      }
    } else if constexpr (kAccess == Access::kShifted || kAccess == Access::kElements) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (holds(i, columns)) to[i] = load_global<kFresh>(from + i * kStep);
      }
    }
  }

  template <class T>
  __device__ __forceinline__ void store(float const (&from)[kWidth], T* row, int columns) const {
    T* const to = row + first;
    if (is_whole(columns)) {
      constexpr int kBytes = kWidth * int(sizeof(T)) < 16 ? 8 : 16;
      constexpr int kPerStore = kBytes / int(sizeof(T));
      using Words = std::conditional_t<kBytes == 8, uint2, uint4>;
      static_assert(kWidth % kPerStore == 0);
#pragma unroll
      for (int i = 0; i < kWidth; i += kPerStore) {
        alignas(16) T raw[kPerStore];
#pragma unroll
        for (int j = 0; j < kPerStore; ++j) raw[j] = round_to<T>(from[i + j]);
        *reinterpret_cast<Words*>(to + i) = *reinterpret_cast<Words const*>(raw);
      }
    } else if constexpr (kAccess == Access::kShifted || kAccess == Access::kElements) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (holds(i, columns)) to[i * kStep] = round_to<T>(from[i]);
      }
    }
  }
};

}  // namespace cutlass_fused
