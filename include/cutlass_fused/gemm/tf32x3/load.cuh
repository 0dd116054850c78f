// Stages of fp32 operands in shared memory, copied asynchronously as they lie in global memory.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/gemm/tf32x3/operands.hpp"

namespace cutlass_fused::tf32x3 {

// Waits until all but the last kPending groups of this thread's copies have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}
__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;"); }

// Copies `bytes` of a piece of kBytes; the rest of it becomes zero.
template <int kBytes>
__device__ __forceinline__ void copy_piece(float* to, float const* from, int bytes) {
  unsigned const shared = unsigned(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                 "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(from),
                 "r"(bytes));
  }
}

// A stage of one operand: kRows of M or N by kK of K. A line is what lies side by side: a row of K,
// or a column of M or N; its pieces of four numbers are permuted, so that the warps' reads below
// meet no bank twice.
template <Major kMajor, int kRows, int kK>
struct Stage {
  static constexpr int kLine = kMajor == Major::kK ? kK : kRows;
  static constexpr int kLines = kMajor == Major::kK ? kRows : kK;
  static constexpr int kPieces = kLine / 4;
  static constexpr int kFloats = kRows * kK;
  using Values = float[4][4];

  __device__ static int order(int line) {
    return kMajor == Major::kK ? (line >> 4 & 1) << 2 : line >> 2 & 3;
  }
  __device__ static int at(int line, int piece) {
    return (line * kPieces + (piece ^ order(line))) * 4;
  }

  // The rows of a warp that a thread multiplies are four neighbours, `slot` among them.
  __device__ static int first_row() {
    int const group = int(threadIdx.x) % 32 / 4;
    return (group / 2 + group % 2 * 4) * 4;
  }

  // Of the 16 of K that begin at k: values[slot][i] at k + 4 * (lane % 4) + i.
  __device__ static void read(float const* stage, int row, int k, Values& values) {
    int const own = row + first_row(), k_own = k + int(threadIdx.x) % 4 * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      bool constexpr kAlongK = kMajor == Major::kK;
      float4 const piece = *reinterpret_cast<float4 const*>(
          stage + (kAlongK ? at(own + j, k_own / 4) : at(k_own + j, own / 4)));
      float const four[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) values[kAlongK ? j : i][kAlongK ? i : j] = four[i];
    }
  }
};

// Copies the stages of an operand, one behind the other. A thread copies the same piece of every
// kStep-th line. kWhole: pieces of 16 bytes may be copied.
template <Major kMajor, int kRows, int kK, int kThreads, bool kWhole>
class Loader {
 public:
  using Stage = tf32x3::Stage<kMajor, kRows, kK>;

  // From row and k on, of so many rows in all.
  __device__ Loader(FloatOperand const& operand, int64_t batch, int row, int rows, int k)
      : base_(operand.data),
        ld_(operand.ld),
        line_(int(threadIdx.x) / Stage::kPieces),
        piece_(int(threadIdx.x) % Stage::kPieces),
        rows_left_(rows - row) {
    from_ = base_ + batch * operand.batch_stride +
            (kMajor == Major::kK ? (row + line_) * ld_ + k : (k + line_) * ld_ + row) + piece_ * 4;
  }

  // The next stage; k_left of K are left from its beginning on.
  __device__ void load(float* stage, int k_left) {
    if (rows_left_ >= kRows && k_left >= kK) {
      load_whole(stage);
    } else {
      load_part(stage, k_left);
    }
    from_ += kMajor == Major::kK ? int64_t(kK) : kK * ld_;
  }

 private:
  static constexpr int kPiece = kWhole ? 4 : 1;  // numbers that are copied at once
  static constexpr int kStep = kThreads / Stage::kPieces;
  static constexpr int kCount = Stage::kLines / kStep;
  static_assert(kThreads % Stage::kPieces == 0 && Stage::kLines % kStep == 0);

  // Most stages lie in the matrix: nothing is asked of their pieces.
  __device__ __forceinline__ void load_whole(float* stage) const {
    float const* from = from_;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      // As at(line_ + i * kStep, piece_), of which most is the same for every i.
      float* const to = stage + (Stage::at(line_, piece_) ^ 4 * Stage::order(i * kStep)) +
                        i * kStep * Stage::kLine;
#pragma unroll
      for (int j = 0; j < 4; j += kPiece) copy_piece<4 * kPiece>(to + j, from + j, 4 * kPiece);
      from += kStep * ld_;
    }
  }

  __device__ __forceinline__ void load_part(float* stage, int k_left) const {
    constexpr bool kAlongK = kMajor == Major::kK;
    int const left = (kAlongK ? k_left : rows_left_) - piece_ * 4;
    int const lines_left = (kAlongK ? rows_left_ : k_left) - line_;
    float const* from = from_;
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      float* const to = stage + Stage::at(line_ + i * kStep, piece_);
      int const count = i * kStep < lines_left ? min(max(left, 0), 4) : 0;
#pragma unroll
      for (int j = 0; j < 4; j += kPiece) {
        bool const is_in = j < count;
        copy_piece<4 * kPiece>(to + j, is_in ? from + j : base_,
                               is_in ? min(count - j, kPiece) * 4 : 0);
      }
      from += kStep * ld_;
    }
  }

  float const* base_;  // of the batch: any address that may be read
  float const* from_;
  int64_t ld_;
  int line_, piece_, rows_left_;
};

// What loads matrices of numbers of this type. gemm/mixed/load.cuh has that of 16-bit ones.
template <class T, Major kMajor, int kRows, int kK, int kThreads, bool kWhole>
struct LoaderOf {
  using type = Loader<kMajor, kRows, kK, kThreads, kWhole>;
};

}  // namespace cutlass_fused::tf32x3
