// Stages of 16-bit rows in shared memory, beside those of an fp32 operand (gemm/tf32x3/load.cuh).
#pragma once

#include "cutlass_fused/common/data_type.hpp"
#include "cutlass_fused/gemm/tf32x3/load.cuh"

namespace cutlass_fused::tf32x3 {

// kRows of M by kK of K. A unit is what the four threads of a row read at once: 16 numbers, of
// which 128 bytes hold four. They are permuted, so that the rows that half a warp reads meet no
// bank twice.
template <class T, int kRows, int kK>
struct NarrowStage {
  static constexpr int kUnit = 16;
  static constexpr int kUnits = kK / kUnit;
  static constexpr int kFloats = kRows * kK / 2;
  static_assert(sizeof(T) == 2 && kK % 32 == 0);

  // Four numbers of each of four rows, as they are.
  using Values = uint2[4];

  // The same for rows that share 128 bytes.
  __device__ static int order(int row) { return (row >> 4 & 1) | (row >> 2 & 1) << 1; }
  __device__ static int at(int row, int unit) {
    return ((row * kUnits + unit) ^ order(row)) * kUnit;
  }

  __device__ static int first_row() { return Stage<Major::kK, kRows, kK>::first_row(); }

  // As Stage::read.
  __device__ static void read(float const* stage, int row, int k, Values& values) {
    T const* const from = reinterpret_cast<T const*>(stage) + int(threadIdx.x) % 4 * 4;
    int const own = row + first_row();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] = *reinterpret_cast<uint2 const*>(from + at(own + j, k / kUnit));
    }
  }
};

// As Loader, of rows that begin at multiples of 16 bytes. The operand's data and distances are of
// numbers of this type.
template <class T, int kRows, int kK, int kThreads>
class NarrowLoader {
 public:
  using Stage = NarrowStage<T, kRows, kK>;

  __device__ NarrowLoader(FloatOperand const& operand, int64_t batch, int row, int rows, int k)
      : base_(reinterpret_cast<T const*>(operand.data) + batch * operand.batch_stride),
        ld_(operand.ld),
        line_(int(threadIdx.x) / kPieces),
        piece_(int(threadIdx.x) % kPieces),
        rows_left_(rows - row) {
    from_ = base_ + (row + line_) * ld_ + k + piece_ * kPiece;
  }

  // The next stage; k_left of K are left from its beginning on.
  __device__ void load(float* stage, int k_left) {
    T* const to = reinterpret_cast<T*>(stage) + piece_ % 2 * kPiece;
    T const* from = from_;
    bool const is_whole = rows_left_ >= kRows && k_left >= kK;
    int const left = min(max(k_left - piece_ * kPiece, 0), kPiece);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      int const line = line_ + i * kStep;
      int const count = is_whole ? kPiece : line < rows_left_ ? left : 0;
      copy_piece<16>(reinterpret_cast<float*>(to + Stage::at(line, piece_ / 2)),
                     reinterpret_cast<float const*>(count > 0 ? from : base_), count * 2);
      from += kStep * ld_;
    }
    from_ += kK;
  }

 private:
  static constexpr int kPiece = 8;  // numbers that are copied at once
  static constexpr int kPieces = kK / kPiece;
  static constexpr int kStep = kThreads / kPieces;
  static constexpr int kCount = kRows / kStep;
  static_assert(kThreads % kPieces == 0 && kRows % kStep == 0);

  T const* base_;  // of the batch: any address that may be read
  T const* from_;
  int64_t ld_;
  int line_, piece_, rows_left_;
};

template <int kRows, int kK, int kThreads>
struct LoaderOf<__half, Major::kK, kRows, kK, kThreads, true> {
  using type = NarrowLoader<__half, kRows, kK, kThreads>;
};
template <int kRows, int kK, int kThreads>
struct LoaderOf<__nv_bfloat16, Major::kK, kRows, kK, kThreads, true> {
  using type = NarrowLoader<__nv_bfloat16, kRows, kK, kThreads>;
};

}  // namespace cutlass_fused::tf32x3
