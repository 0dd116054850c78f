// A reduction over the threads of a row, in a fixed order: two runs give the same bits.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

struct TakeMax {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// A NaN if there is one.
struct TakeMaxOrNaN {
  __device__ __forceinline__ float operator()(float a, float b) const {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
};

struct TakeSum {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

template <class T>
__device__ __forceinline__ T exchange(T value, int offset) {
  return __shfl_xor_sync(0xffffffffu, value, offset);
}

// Over each kLanes neighbouring lanes of a warp, all of which must call it.
template <int kLanes = 32, class T, class Merge>
__device__ __forceinline__ T reduce_warp(T value, Merge merge) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    T const other = exchange(value, offset);
    // The lower lane's value first, in both lanes, so that both get the same bits.
    value = threadIdx.x & offset ? merge(other, value) : merge(value, other);
  }
  return value;
}

// A Merge by shuffles alone. All lanes get the same bits where a Merge may swap its operands.
template <class Merge>
struct ByShuffles : Merge {};
template <int kLanes = 32, class T, class Merge>
__device__ __forceinline__ T reduce_warp(T value, ByShuffles<Merge> merge) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value = merge(value, exchange(value, offset));
  }
  return value;
}

__device__ __forceinline__ unsigned reduce_warp(unsigned value, TakeSum) {
  return __reduce_add_sync(0xffffffffu, value);
}

// In one instruction of integers, in whose order those of fp32 are but below zero, where the bits
// of a larger number are the smaller ones. A NaN without a sign, as instructions make it, is the
// largest; one with a sign, as memory may hold it, would be the smallest.
__device__ __forceinline__ float reduce_warp(float value, TakeMaxOrNaN) {
  auto const swap_order = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  int const bits = __reduce_max_sync(0xffffffffu, swap_order(__float_as_int(value)));
  return __int_as_float(swap_order(bits));
}
__device__ __forceinline__ float reduce_warp(float value, TakeMax) {
  return reduce_warp(value, TakeMaxOrNaN{});
}

// One value for each warp of the row.
constexpr int kMostRowWarps = 16;
template <class T>
using RowSlots = T[kMostRowWarps];

// What the warps of a row have put there: both halves of a warp read and merge all of it.
template <class T, class Merge>
__device__ __forceinline__ T merge_slots(T const* slots, int warps, T neutral, Merge merge) {
  int const slot = threadIdx.x % kMostRowWarps;
  T const value = slot < warps ? slots[slot] : neutral;
  if constexpr (std::is_same_v<Merge, TakeMax>) return reduce_warp(value, merge);
  return reduce_warp<kMostRowWarps>(value, merge);
}

// Over all threads of a row, those of the block in x; every thread gets the same bits. All threads
// of the block must call it. `slots` may be written again when they have met in another reduction.
template <class T, class Merge>
__device__ __forceinline__ T reduce_row(T value, RowSlots<T>& slots, T neutral, Merge merge) {
  int const warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  value = reduce_warp(value, merge);
  if (warps == 1) return value;
  if (lane == 0) slots[warp] = value;
  __syncthreads();
  return merge_slots(slots, warps, neutral, merge);
}

}  // namespace cutlass_fused
