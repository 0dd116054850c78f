// A piece of a row: a few elements per thread, in 16-byte accesses where the rows are aligned.
#pragma once

#include <type_traits>

#include "cutlass_fused/types.hpp"

namespace cutlass_fused {

template <DataType>
struct StorageOf;
template <>
struct StorageOf<DataType::kFloat32> {
  using type = float;
};
template <>
struct StorageOf<DataType::kFloat16> {
  using type = __half;
};
template <>
struct StorageOf<DataType::kBFloat16> {
  using type = __nv_bfloat16;
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

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

// The threads of a warp share 32 * kWidth columns from `base` on. In aligned rows (they start on 16
// bytes and hold a whole number of kWidth columns) a thread's columns lie side by side; in others
// the threads' columns do, so that accesses by element are coalesced. Rows hold 2^30 columns at
// most, so that a base behind the last one does not overflow.
template <int kWidth, bool kAligned>
struct Piece {
  static constexpr int kStep = kAligned ? 1 : 32;
  int first;

  __device__ __forceinline__ Piece(int base, int lane)
      : first(kAligned ? base + lane * kWidth : base + lane) {}

  __device__ __forceinline__ int column(int i) const { return first + i * kStep; }

  // Of aligned rows a piece lies within the row as a whole or not at all.
  __device__ __forceinline__ bool holds(int i, int columns) const {
    return kAligned ? first < columns : i * kStep < columns - first;
  }

  template <class T>
  __device__ __forceinline__ void load(T const* row, int columns, T (&to)[kWidth]) const {
    T const* const from = row + first;
    if constexpr (kAligned) {
      constexpr int kPerLoad = 16 / int(sizeof(T));
      static_assert(kWidth % kPerLoad == 0);
      if (!holds(0, columns)) return;
#pragma unroll
      for (int i = 0; i < kWidth; i += kPerLoad) {
        *reinterpret_cast<uint4*>(&to[i]) = *reinterpret_cast<uint4 const*>(from + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (holds(i, columns)) to[i] = from[i * kStep];
      }
    }
  }

  template <class T>
  __device__ __forceinline__ void store(float const (&from)[kWidth], T* row, int columns) const {
    T* const to = row + first;
    if constexpr (kAligned) {
      constexpr int kBytes = kWidth * int(sizeof(T)) < 16 ? 8 : 16;
      constexpr int kPerStore = kBytes / int(sizeof(T));
      using Words = std::conditional_t<kBytes == 8, uint2, uint4>;
      static_assert(kWidth % kPerStore == 0);
      if (!holds(0, columns)) return;
#pragma unroll
      for (int i = 0; i < kWidth; i += kPerStore) {
        alignas(16) T raw[kPerStore];
#pragma unroll
        for (int j = 0; j < kPerStore; ++j) raw[j] = round_to<T>(from[i + j]);
        *reinterpret_cast<Words*>(to + i) = *reinterpret_cast<Words const*>(raw);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (holds(i, columns)) to[i * kStep] = round_to<T>(from[i]);
      }
    }
  }
};

}  // namespace cutlass_fused
