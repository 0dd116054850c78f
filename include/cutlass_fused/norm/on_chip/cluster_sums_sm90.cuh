// Sums over the rows that a block holds (cluster_rows_sm90.cuh), in a fixed order.
#pragma once

#include <cuda_runtime.h>

namespace cutlass_fused {

// The sums of v over the threads of a warp that share columns. Each of them keeps those of some
// columns alone: from the one returned on, kCount divided by the threads, or one.
template <int kOffset, int kCount, int kWidth>
__device__ __forceinline__ int scatter_sums(float (&v)[kWidth]) {
  if constexpr (kOffset >= 32) {
    return 0;
  } else if constexpr (kCount == 1) {
    v[0] += __shfl_xor_sync(0xffffffffu, v[0], kOffset);
    return scatter_sums<2 * kOffset, 1>(v);
  } else {
    constexpr int kHalf = kCount / 2;
    bool const upper = (threadIdx.x & kOffset) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      float const sent = upper ? v[i] : v[i + kHalf], kept = upper ? v[i + kHalf] : v[i];
      v[i] = kept + __shfl_xor_sync(0xffffffffu, sent, kOffset);
    }
    return (upper ? kHalf : 0) + scatter_sums<2 * kOffset, kHalf>(v);
  }
}

// A thread's columns, 16 bytes at a time if they are whole pieces.
template <int kCount>
__device__ __forceinline__ void load_shared(float const* from, float (&to)[kCount]) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      float4 const four = *reinterpret_cast<float4 const*>(from + i);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from[i];
  }
}

template <class Block>
using WarpSums = float[Block::kWarps][Block::kColumns];

// The sums of v over the block's rows, to be added up over the warps behind a barrier.
template <class Block>
__device__ __forceinline__ void write_warp_sums(float (&v)[Block::kWidth], WarpSums<Block>& sums) {
  constexpr int kKept = Block::kWidth / Block::kRowsOfWarp;
  int const first = scatter_sums<Block::kLanes, Block::kWidth>(v);
  float* const to = &sums[threadIdx.x / 32][threadIdx.x % Block::kLanes * Block::kWidth + first];
#pragma unroll
  for (int i = 0; i < (kKept < 1 ? 1 : kKept); ++i) to[i] = v[i];
}

// The warps' sums of kCount columns, each in the same order.
template <class Block, class T, int kCount>
__device__ __forceinline__ void add_warp_sums(WarpSums<Block> const& sums, int column,
                                              T (&total)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) total[i] = 0;
#pragma unroll
  for (int warp = 0; warp < Block::kWarps; ++warp) {
    alignas(16) float part[kCount];
    load_shared(&sums[warp][column], part);
#pragma unroll
    for (int i = 0; i < kCount; ++i) total[i] += part[i];
  }
}

}  // namespace cutlass_fused
