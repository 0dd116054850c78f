// From fp32 matrices to stages in shared memory, by two warpgroups: x as it lies, by asynchronous
// copies; the weight through registers, where it is split, and transposed if it lies along N.
#pragma once

#include "cutlass_fused/gemm/tf32x3/load.cuh"
#include "cutlass_fused/gemm/tf32x3/multiply.cuh"
#include "cutlass_fused/gemm/tf32x3_sm90/stage.hpp"

namespace cutlass_fused::tf32x3_sm90 {

constexpr int kWarpgroup = 128;  // threads

__device__ __forceinline__ void split_and_store(float4 const& four, char* high, char* low) {
  using tf32x3::split_number;
  uint4 of_high, of_low;
  split_number<false>(four.x, of_high.x, of_low.x);
  split_number<false>(four.y, of_high.y, of_low.y);
  split_number<false>(four.z, of_high.z, of_low.z);
  split_number<false>(four.w, of_high.w, of_low.w);
  *reinterpret_cast<uint4*>(high) = of_high;
  *reinterpret_cast<uint4*>(low) = of_low;
}

// Up to four numbers that lie side by side; zeros behind them.
__device__ __forceinline__ float4 load_part(float const* from, int count) {
  return {count > 0 ? from[0] : 0.0f, count > 1 ? from[1] : 0.0f, count > 2 ? from[2] : 0.0f,
          count > 3 ? from[3] : 0.0f};
}

// Which numbers of a stage a thread loads: four pieces of four numbers, which lie a step apart. A
// warp loads one of kRows / 16 shares.
template <Major kMajor, int kRows>
struct Share;

// Four rows of 128 bytes at once.
template <int kRows>
struct Share<Major::kK, kRows> {
  int row, k;  // of the first piece

  __device__ explicit Share(int warp)
      : row(warp * 4 + int(threadIdx.x) % 32 / 8), k(int(threadIdx.x) % 8 * 4) {}

  __device__ int64_t offset(int64_t ld) const { return row * ld + k; }
  __device__ static int64_t step(int64_t ld) { return kRows / 4 * ld; }
  // How many numbers of a piece lie in the matrix.
  __device__ int count(int piece, int rows_left, int k_left) const {
    return row + piece * (kRows / 4) < rows_left ? k_left - k : 0;
  }
  // write(offset in SwizzledRows, four numbers along K)
  template <class Write>
  __device__ void store(float4 const (&four)[4], Write const& write) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) write(place(i), four[i]);
  }
  // Of a piece, in rows that are copied as they lie: SwizzledRows.
  __device__ int place(int piece) const {
    return SwizzledRows::offset(row, k / 4) + piece * (kRows / 4) * SwizzledRows::kBytes;
  }
};

// 32 rows, which lie side by side, at four k at once. Threads write their four rows in different
// orders, so that eight of them write to all banks.
template <int kRows>
struct Share<Major::kMn, kRows> {
  int row, k;

  __device__ explicit Share(int warp)
      : row(warp % (kRows / 32) * 32 + int(threadIdx.x) % 8 * 4),
        k(warp / (kRows / 32) * 16 + int(threadIdx.x) % 32 / 8 * 4) {}

  __device__ int64_t offset(int64_t ld) const { return k * ld + row; }
  __device__ static int64_t step(int64_t ld) { return ld; }
  __device__ int count(int piece, int rows_left, int k_left) const {
    return k + piece < k_left ? rows_left - row : 0;
  }
  template <class Write>
  __device__ void store(float4 const (&four)[4], Write const& write) const {
    int const order = row / 8 % 4, first = SwizzledRows::offset(row, k / 4);
    float values[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rotate(four[i], order, values[i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // offset(row + (order + i) % 4, k / 4)
      int const at = first ^ (order + i) % 4 * (SwizzledRows::kBytes + 16);
      write(at, float4{values[0][i], values[1][i], values[2][i], values[3][i]});
    }
  }
  // Of a piece, in columns that are copied as they lie: SwizzledColumns.
  __device__ int place(int piece) const {
    return SwizzledColumns<kRows>::offset(k + piece, row / 4);
  }

 private:
  // to[i] = four[(order + i) % 4]
  __device__ static void rotate(float4 const& four, int order, float (&to)[4]) {
    bool const one = order & 1, two = order & 2;
    float const once[4] = {one ? four.y : four.x, one ? four.z : four.y, one ? four.w : four.z,
                           one ? four.x : four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = two ? once[(i + 2) % 4] : once[i];
  }
};

// Where a thread's share of an operand's next stage lies in global memory: of one of kWarps warps.
template <Major kMajor, int kRows, int kWarps>
class Source {
 public:
  __device__ Source(FloatOperand const& operand, int warp)
      : operand_(operand), share_(warp), takes_part_(kRows / 16 >= kWarps || warp < kRows / 16) {}

  // From row and k on, of so many rows in all.
  __device__ void begin(int batch, int row, int rows, int k) {
    int64_t const ld = operand_.ld;
    rows_left_ = rows - row;
    from_ = operand_.data + batch * operand_.batch_stride + share_.offset(ld) +
            (kMajor == Major::kK ? row * ld + k : k * ld + row);
  }

  // k_left of K are left from the stage's beginning on.
  __device__ void load(float4 (&pieces)[4], int k_left) {
    if (!takes_part_) return;
    float const* from = from_;
    if (is_whole(k_left)) {
#pragma unroll
      for (int i = 0; i < 4; ++i, from += share_.step(operand_.ld))
        pieces[i] = *reinterpret_cast<float4 const*>(from);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i, from += share_.step(operand_.ld)) {
        pieces[i] = load_part(from, share_.count(i, rows_left_, k_left));
      }
    }
    from_ += kMajor == Major::kK ? int64_t(SwizzledRows::kK) : SwizzledRows::kK * operand_.ld;
  }
  // As it lies, asynchronously.
  __device__ void copy(char* stage, int k_left) {
    if (!takes_part_) return;
    float const* from = from_;
    bool const whole = is_whole(k_left);
#pragma unroll
    for (int i = 0; i < 4; ++i, from += share_.step(operand_.ld)) {
      int const count = whole ? 4 : min(max(share_.count(i, rows_left_, k_left), 0), 4);
      tf32x3::copy_piece<16>(reinterpret_cast<float*>(stage + share_.place(i)),
                             count > 0 ? from : operand_.data, count * 4);
    }
    from_ += kMajor == Major::kK ? int64_t(SwizzledRows::kK) : SwizzledRows::kK * operand_.ld;
  }
  __device__ void split(float4 const (&pieces)[4], char* high, char* low) const {
    if (!takes_part_) return;
    share_.store(pieces,
                 [&](int at, float4 const& four) { split_and_store(four, high + at, low + at); });
  }

 private:
  __device__ bool is_whole(int k_left) const {
    return rows_left_ >= kRows && k_left >= SwizzledRows::kK;
  }

  FloatOperand const& operand_;
  Share<kMajor, kRows> share_;
  bool takes_part_;
  float const* from_;
  int rows_left_;
};

}  // namespace cutlass_fused::tf32x3_sm90
