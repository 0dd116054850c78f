// A reduction over the threads of a row, in a fixed order: two runs give the same bits.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/types.hpp"

namespace cutlass_fused {

struct TakeMax {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
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

template <class T, class Merge>
__device__ __forceinline__ T reduce_warp(T value, Merge merge) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    T const other = exchange(value, offset);
    // The lower lane's value first, in both lanes, so that both get the same bits.
    value = threadIdx.x & offset ? merge(other, value) : merge(value, other);
  }
  return value;
}

// One value for each warp of the row.
template <class T>
using RowSlots = T[16];

// Over all threads of a row, those of the block in x; every thread gets the same bits. All threads
// of the block must call it. `slots` may be written again when they have met in another reduction.
template <class T, class Merge>
__device__ __forceinline__ T reduce_row(T value, RowSlots<T>& slots, T neutral, Merge merge) {
  int const warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  value = reduce_warp(value, merge);
  if (warps == 1) return value;
  if (lane == 0) slots[warp] = value;
  __syncthreads();
  return reduce_warp(lane < warps ? slots[lane] : neutral, merge);
}

}  // namespace cutlass_fused
