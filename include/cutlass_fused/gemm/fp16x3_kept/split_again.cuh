// Looks whether a weight is the one that its parts are of, and splits it again if not;
// split_again.hpp tells why.
#pragma once

#include "cutlass_fused/gemm/fp16x3/split_rows.cuh"
#include "cutlass_fused/gemm/fp16x3_kept/split_again.hpp"

namespace cutlass_fused {

struct CheckBlock {
  static constexpr int kThreads = 256;
  static constexpr int kBlocksPerSm = 6;  // all run at once
  static constexpr int kLoads = 4;        // of 16 bytes, on their way in each thread
};

__device__ __forceinline__ void add_piece(Checksum& sum, uint4 const& piece, uint32_t place) {
  sum.add(piece.x, place);
  sum.add(piece.y, place + 1);
  sum.add(piece.z, place + 2);
  sum.add(piece.w, place + 3);
}

__device__ __forceinline__ Checksum reduce_warp(Checksum sum) {
  return {reduce_warp(sum.products, ByShuffles<TakeSum>{}),
          reduce_warp(sum.words, ByShuffles<TakeSum>{})};
}

// Adds what all blocks have found. One thread of the last of them gets true, and the total; the
// state is then ready for the next kernel. All threads of a block must call it.
template <int kThreads>
__device__ __forceinline__ bool join_blocks(Checksum sum, ChecksumState* state, Checksum& total) {
  using Word = unsigned long long;
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kWarps = kThreads / 32;
  static_assert(kWarps <= 32 && ChecksumState::kSlots == 32);  // a lane takes one
  __shared__ Checksum of_warps[kWarps];
  int const thread = int(threadIdx.y * blockDim.x + threadIdx.x), lane = thread % 32;
  sum = reduce_warp(sum);
  if (lane == 0) of_warps[thread / 32] = sum;
  __syncthreads();
  if (thread >= 32) return false;
  sum = reduce_warp(lane < kWarps ? of_warps[lane] : Checksum{});
  unsigned before = 0;
  if (lane == 0) {
    Checksum& slot = state->slots[blockIdx.x % ChecksumState::kSlots].sum;
    atomicAdd(reinterpret_cast<Word*>(&slot.products), Word(sum.products));
    atomicAdd(reinterpret_cast<Word*>(&slot.words), Word(sum.words));
    __threadfence();
    before = atomicAdd(&state->done, 1u);
    __threadfence();
  }
  if (__shfl_sync(kAll, before, 0) != gridDim.x - 1) return false;
  Checksum& slot = state->slots[lane].sum;
  total = reduce_warp(Checksum{atomicExch(reinterpret_cast<Word*>(&slot.products), Word(0)),
                               atomicExch(reinterpret_cast<Word*>(&slot.words), Word(0))});
  if (lane == 0) state->done = 0;
  return lane == 0;
}

// Of so many pieces of four numbers. Whether others are on their way elsewhere does not matter:
// has_changed is about the parts and the weight as they are, whoever asks.
__global__ void __launch_bounds__(CheckBlock::kThreads, CheckBlock::kBlocksPerSm)
    check_weight(uint4 const* weight, uint32_t pieces, ChecksumState* state) {
  constexpr int kLoads = CheckBlock::kLoads;
  wait_for_previous_kernel();
  allow_next_kernel();
  Checksum sum{};
  uint32_t const step = gridDim.x * CheckBlock::kThreads;
  uint32_t at = blockIdx.x * CheckBlock::kThreads + threadIdx.x;
  for (; at + (kLoads - 1) * step < pieces; at += kLoads * step) {
    uint4 loaded[kLoads];
#pragma unroll
    // What is multiplied are the parts: the weight is not needed in the cache.
    for (int i = 0; i < kLoads; ++i) loaded[i] = __ldcs(weight + at + i * step);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) add_piece(sum, loaded[i], 4 * (at + i * step));
  }
  for (; at < pieces; at += step) add_piece(sum, __ldcs(weight + at), 4 * at);
  Checksum total;
  if (join_blocks<CheckBlock::kThreads>(sum, state, total)) {
    state->has_changed = state->is_kept == 0 || !(total == state->kept);
  }
}

struct SplitAgain {
  static constexpr int kBlocksPerSm = 3;  // the checksum's registers cost one
};

struct SplitAgainParams {
  SplitRowsParams matrix;  // whose rows follow each other
  unsigned blocks;         // of rows: a block may take several
  ChecksumState* state;
  bool always;
};

// As many blocks as run at once: to find that there is nothing to do takes them no time.
template <bool kLow, int kHeld>
__global__ void __launch_bounds__(SplitBlock::kThreads, SplitAgain::kBlocksPerSm)
    split_rows_again(__grid_constant__ SplitAgainParams const params) {
  constexpr int kThreads = SplitBlock::kThreads;
  __shared__ SplitSlots slots;
  wait_for_previous_kernel();
  allow_next_kernel();
  if (!params.always && params.state->has_changed == 0) return;
  SplitRowsParams const& matrix = params.matrix;
  Checksum sum{};
  auto const look = [&](float const(&piece)[SplitBlock::kWidth], int64_t row, int64_t at) {
#pragma unroll
    for (int i = 0; i < SplitBlock::kWidth; i += 4) {
      if (at + i >= matrix.k) break;
      uint4 const words{__float_as_uint(piece[i]), __float_as_uint(piece[i + 1]),
                        __float_as_uint(piece[i + 2]), __float_as_uint(piece[i + 3])};
      add_piece(sum, words, uint32_t(row) * uint32_t(matrix.k) + uint32_t(at) + i);
    }
  };
  for (unsigned block = blockIdx.x; block < params.blocks; block += gridDim.x) {
    split_block<kLow, true, kHeld, false>(matrix, block, slots, look);
  }
  Checksum total;
  if (join_blocks<kThreads>(sum, params.state, total)) {
    params.state->kept = total;
    params.state->is_kept = 1;
  }
}

}  // namespace cutlass_fused
