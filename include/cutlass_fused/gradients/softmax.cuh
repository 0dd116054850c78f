// The kernels of softmax.hpp: a row to some lanes of a warp, or to a block.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/gradients/softmax.hpp"
#include "cutlass_fused/softmax/reduce_row.cuh"

namespace cutlass_fused {

template <class T>
struct SoftmaxGradientParams {
  int64_t m, n;
  T const* grad_y;
  T const* y;
  T* grad_v;
};

// What a thread holds of a row of both matrices: pieces of 16 bytes or, where not all rows begin at
// multiples of that, of one number, so that neighbouring threads read side by side.
template <class T, bool kAligned, int kPieces>
struct SoftmaxGradientPart {
  static constexpr int kWidth = kAligned ? 16 / int(sizeof(T)) : 1;
  static constexpr int kStep = 32 * kWidth;  // from piece to piece: what a warp reads at once
  using Numbers = T[kPieces][kWidth];

  alignas(16) Numbers grad_y;
  alignas(16) Numbers y;

  // `from`: the first number of the thread's first piece; `left`: numbers of the row from there on.
  // What the row does not have is 0, and adds nothing to its sum.
  __device__ __forceinline__ static void load(Numbers& to, T const* from, int left) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      bool const holds = p * kStep < left;
      if constexpr (kAligned) {
        uint4 const none{0, 0, 0, 0};
        auto const piece = reinterpret_cast<uint4 const*>(from + p * kStep);
        *reinterpret_cast<uint4*>(to[p]) = holds ? *piece : none;
      } else {
        to[p][0] = holds ? from[p * kStep] : round_to<T>(0.0f);
      }
    }
  }

  // Sums of pieces that do not wait for each other.
  __device__ __forceinline__ float multiply() const {
    constexpr int kSums = kPieces < 4 ? kPieces : 4;
    float sums[kSums] = {};
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float& sum = sums[p % kSums];
        sum = fmaf(to_float(grad_y[p][i]), to_float(y[p][i]), sum);
      }
    }
    if constexpr (kSums == 4) return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    static_assert(kSums == 4 || kSums == 1);
    return sums[0];
  }

  __device__ __forceinline__ void store(float sum, T* to, int left) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (p * kStep >= left) continue;
      alignas(16) T piece[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        piece[i] = round_to<T>(to_float(y[p][i]) * (to_float(grad_y[p][i]) - sum));
      }
      if constexpr (kAligned) {
        *reinterpret_cast<uint4*>(to + p * kStep) = *reinterpret_cast<uint4 const*>(piece);
      } else {
        to[p * kStep] = piece[0];
      }
    }
  }
};

// Rows that so many pieces in each of some lanes hold. A thread has parts of several rows, since
// those of one are too few loads to wait for.
template <int kRowsOfThread, int kPiecesOfRow>
struct SoftmaxGradientLanes {
  static constexpr int kRows = kRowsOfThread, kPieces = kPiecesOfRow, kThreads = 256;
};

// blockDim = (lanes of a row: a power of 2, 32 where they have more pieces than one; rows that are
// read at once).
template <class T, bool kAligned, class Lanes>
__global__ void __launch_bounds__(Lanes::kThreads)
    softmax_gradient_short(__grid_constant__ SoftmaxGradientParams<T> const params) {
  using Part = SoftmaxGradientPart<T, kAligned, Lanes::kPieces>;
  constexpr int kRows = Lanes::kRows;
  wait_for_previous_kernel();
  allow_next_kernel();
  int const lane = int(threadIdx.x), n = int(params.n), column = lane * Part::kWidth;
  int const step = int(blockDim.y);
  int64_t const row0 = int64_t(blockIdx.x) * (step * kRows) + threadIdx.y;
  int64_t const offset0 = row0 * n + column;
  // All lanes of a warp meet in the sums, also those behind the last row.
  auto const left = [&](int r) { return row0 + r * step < params.m ? n - column : 0; };

  Part parts[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    int64_t const offset = offset0 + int64_t(r) * step * n;
    Part::load(parts[r].grad_y, params.grad_y + offset, left(r));
    Part::load(parts[r].y, params.y + offset, left(r));
  }
  float sums[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = parts[r].multiply();
  for (int distance = int(blockDim.x) / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] += exchange(sums[r], distance);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    parts[r].store(sums[r], params.grad_v + offset0 + int64_t(r) * step * n, left(r));
  }
}

// A row to a block, or to each of its warps. Half of the registers hold both matrices: 64 of them
// for two blocks on an SM or, of longer rows, 128 for one.
template <bool kIsLong>
struct SoftmaxGradientBlock {
  static constexpr int kThreads = 512, kBlocks = kIsLong ? 1 : 2;
  static constexpr int kRows = 4;  // of a block, where a warp holds one
  static_assert(kThreads <= 32 * kMostRowWarps);

  static constexpr int pieces(bool aligned) { return (aligned ? 4 : 16) * (kIsLong ? 2 : 1); }
};

// blockDim = (threads of a row: whole warps; rows of a block: one if a row has more warps than
// one). `parts`: of a row, each as long as what a block holds, but for the last one. Of several the
// first is read last, and kept; the others are read again, out of L2 as far as they are still
// there.
template <class T, bool kAligned, class Block>
__global__ void __launch_bounds__(Block::kThreads, Block::kBlocks)
    softmax_gradient(__grid_constant__ SoftmaxGradientParams<T> const params, int const parts) {
  using Part = SoftmaxGradientPart<T, kAligned, Block::pieces(kAligned)>;
  constexpr int kPartOfWarp = Block::pieces(kAligned) * Part::kStep;
  __shared__ RowSlots<float> slots;
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= params.m) return;  // as a whole warp, which meets no other
  int const warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  int const column = warp * kPartOfWarp + lane * Part::kWidth;
  int const columns = int(blockDim.x) / 32 * kPartOfWarp;
  int64_t const behind = int64_t(parts - 1) * columns;  // the last part begins there
  int const left_of_last = int(params.n - behind) - column;

  int64_t const offset = row * params.n + column;
  T const* grad_y = params.grad_y + offset + behind;
  T const* y = params.y + offset + behind;
  T* grad_v = params.grad_v + offset;
  int left = left_of_last;
  Part part;
  float sum = 0;
#pragma unroll 1
  for (int i = parts;;) {
    Part::load(part.grad_y, grad_y, left);
    Part::load(part.y, y, left);
    sum += part.multiply();
    if (--i == 0) break;
    grad_y -= columns;
    y -= columns;
    left = columns - column;
  }
  sum = reduce_row(sum, slots, 0.0f, ByShuffles<TakeSum>{});
#pragma unroll 1
  for (int i = parts;;) {
    part.store(sum, grad_v, left);
    if (--i == 0) break;
    grad_y += columns;
    y += columns;
    grad_v += columns;
    if (i == 1) left = left_of_last;
    Part::load(part.grad_y, grad_y, left);
    Part::load(part.y, y, left);
  }
}

}  // namespace cutlass_fused
