// A block's part of some columns of a matrix, held on chip between two passes over it.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "cutlass_fused/common/piece.cuh"

namespace cutlass_fused {

// Threads, `kLanes` of them along a row with `kWidth` neighbouring columns each. A thread holds
// `kPieces` rows in registers or, if that is 0, any number in shared memory.
template <DataType kIn_, int kWidth_, int kLanes_, int kThreads_, int kPieces_>
struct ClusterBlock {
  static constexpr DataType kIn = kIn_;
  static constexpr int kWidth = kWidth_, kLanes = kLanes_, kThreads = kThreads_;
  static constexpr int kPieces = kPieces_;
  static constexpr int kColumns = kLanes * kWidth;
  static constexpr int kRows = kThreads / kLanes;
  static constexpr int kRowsOfWarp = 32 / kLanes;
  static constexpr int kWarps = kThreads / 32;
  // 80 registers to a thread; pieces in registers take more.
  static constexpr int kBlocksPerSm = (kPieces > 0 && kWidth > 1 ? 512 : 768) / kThreads;
  using In = Storage<kIn>;
  // One to a column, in whole warps.
  static constexpr int kVectorThreads = kColumns < 32 ? 32 : kColumns;
  static_assert(kLanes <= 32 && kVectorThreads <= kThreads);
};

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) ClusterPiece {
  T elements[kWidth];

  // A load of 16 bytes goes past L1, since nothing of it is read again.
  __device__ __forceinline__ void load(T const* from) {
    if constexpr (sizeof(*this) == 16) {
      *reinterpret_cast<uint4*>(this) = __ldcg(reinterpret_cast<uint4 const*>(from));
    } else {
      elements[0] = *from;
    }
  }
  // 16-bit elements in pairs: one instruction rounds both.
  __device__ __forceinline__ void round(float const (&v)[kWidth]) {
    if constexpr (kWidth == 1 || sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) elements[i] = round_to<T>(v[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; i += 2) {
        if constexpr (std::is_same_v<T, __half>) {
          *reinterpret_cast<__half2*>(elements + i) = __floats2half2_rn(v[i], v[i + 1]);
        } else {
          *reinterpret_cast<__nv_bfloat162*>(elements + i) = __floats2bfloat162_rn(v[i], v[i + 1]);
        }
      }
    }
  }
  __device__ __forceinline__ void store(T* to) const {
    *reinterpret_cast<ClusterPiece*>(to) = *this;
  }
};

// The rows of a thread, at x, x + step, ..., `count` of them.
template <class Block, bool kInRegisters = (Block::kPieces > 0)>
struct ClusterRows {
  using In = typename Block::In;
  ClusterPiece<In, Block::kWidth> pieces[Block::kPieces];

  __device__ __forceinline__ void load(In const* x, int64_t step, int count) {
#pragma unroll
    for (int p = 0; p < Block::kPieces; ++p) {
      if (p < count) pieces[p].load(x + p * step);
    }
  }
  template <class Use>
  __device__ __forceinline__ void for_each(int count, Use const& use) const {
#pragma unroll
    for (int p = 0; p < Block::kPieces; ++p) {
      if (p < count) use(p, pieces[p].elements);
    }
  }
};

template <class Block>
struct ClusterRows<Block, false> {
  using In = typename Block::In;
  using Piece = ClusterPiece<In, Block::kWidth>;

  // A thread reads back what it wrote itself: no barrier between the two.
  __device__ __forceinline__ static Piece& place(int p) {
    extern __shared__ uint4 cluster_rows[];
    return reinterpret_cast<Piece*>(cluster_rows)[p * Block::kThreads + threadIdx.x];
  }
  __device__ __forceinline__ void load(In const* x, int64_t step, int count) {
#pragma unroll 8
    for (int p = 0; p < count; ++p) {
      if constexpr (sizeof(Piece) == 16) {
        __pipeline_memcpy_async(&place(p), x + p * step, 16);
      } else {
        place(p).elements[0] = x[p * step];
      }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }
  template <class Use>
  __device__ __forceinline__ void for_each(int count, Use const& use) const {
#pragma unroll 4
    for (int p = 0; p < count; ++p) {
      Piece const piece = place(p);
      use(p, piece.elements);
    }
  }
};

}  // namespace cutlass_fused
