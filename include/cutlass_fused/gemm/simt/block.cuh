// A block of a plain fp32 product on CUDA cores: one rounding per multiply-add, in order of k, over
// 16 of K; then sums of 16 of these sums, of 16 of those, and of the rest. Over all of K at once
// the error would be that of cuBLAS where that does not split K, and above it where it does.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// An fp32 matrix that lies along K.
struct FloatReader {
  void const* data;
  int64_t ld;

  __device__ __forceinline__ float operator()(int64_t row, int64_t k) const {
    return static_cast<float const*>(data)[row * ld + k];
  }
  // Whether neighbouring rows, not neighbouring k, are to be read together.
  __device__ __forceinline__ bool lies_along_rows() const { return false; }
};

// One that lies either way.
struct StridedReader {
  float const* data;
  int64_t row_stride, k_stride;

  StridedReader(void const* data, int64_t ld, Major major)
      : data(static_cast<float const*>(data)),
        row_stride(major == Major::kK ? ld : 1),
        k_stride(major == Major::kK ? 1 : ld) {}

  __device__ __forceinline__ float operator()(int64_t row, int64_t k) const {
    return data[row * row_stride + k * k_stride];
  }
  __device__ __forceinline__ bool lies_along_rows() const { return row_stride == 1; }
};

// What a split leaves of one.
struct SplitReader {
  SplitMatrix split;
  int64_t pitch;  // split.layout.pitch()

  __device__ __forceinline__ float operator()(int64_t row, int64_t k) const {
    constexpr int kBlock = SplitLayout::kBlock;
    __half const* const from = split.rows + row * pitch;
    float const h = split.scales[row].h();
    if (!split.layout.has_low) return __half2float(from[k]) * h * h;
    int64_t const at = k / kBlock * 2 * kBlock + k % kBlock;
    float const low = __half2float(from[at + kBlock]) * SplitLayout::kLowUnit;
    return (__half2float(from[at]) + low) * h * h;
  }
  __device__ __forceinline__ bool lies_along_rows() const { return false; }
};

// Outputs of 64 rows, of which a thread has several.
template <int kColumns_, int kThreads_ = 256>
struct SimtBlockOf {
  static constexpr int kRows = 64, kColumns = kColumns_, kThreads = kThreads_;
  static constexpr int kStep = 16;          // of K
  static constexpr int kSums = 16;          // of one level in one of the next
  static constexpr int kColumnsApart = 16;  // those of a thread
  static constexpr int kRowsApart = kThreads / kColumnsApart;
  static constexpr int kOwnRows = kRows / kRowsApart, kOwnColumns = kColumns / kColumnsApart;
  static_assert(kThreads % kColumnsApart == 0 && kRows % kRowsApart == 0);

  struct Shared {
    float x[kStep][kRows + 1], weight[kStep][kColumns + 1];
  };

  using Sums = float[kOwnRows][kOwnColumns];

  // Moves the sums of a level to the next one.
  __device__ static void move(Sums& from, Sums& to) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        to[i][j] += from[i][j];
        from[i][j] = 0.0f;
      }
    }
  }

  // kStep of K from k0 on, of the kCount rows from row0 on; zeros where there are none.
  template <int kCount, class Reader>
  __device__ static void load(Reader const& reader, int64_t row0, int64_t rows, int64_t k0,
                              int64_t end, float (&to)[kStep][kCount + 1]) {
    bool const along_rows = reader.lies_along_rows();
#pragma unroll 2
    for (int i = threadIdx.x; i < kCount * kStep; i += kThreads) {
      int const row = along_rows ? i % kCount : i / kStep, k = along_rows ? i / kCount : i % kStep;
      to[k][row] = k0 + k < end && row0 + row < rows ? reader(row0 + row, k0 + k) : 0.0f;
    }
  }

  // acc[i][j] += sum over k of x[m0 + row(i), k] * weight[n0 + column(j), k]
  template <class X, class Weight>
  __device__ static void multiply(GemmArgs const& gemm, X const& x, Weight const& weight,
                                  int64_t m0, int64_t n0, Shared& shared, Sums& acc) {
    Sums step_sums = {}, near = {}, far = {};
    int64_t step = 0;
    for (int64_t k0 = 0; k0 < gemm.k; k0 += kStep) {
      load<kRows>(x, m0, gemm.m, k0, gemm.k, shared.x);
      load<kColumns>(weight, n0, gemm.n, k0, gemm.k, shared.weight);
      __syncthreads();
      int const depth = gemm.k - k0 < kStep ? int(gemm.k - k0) : kStep;
      for (int k = 0; k < depth; ++k) {
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
          for (int j = 0; j < kOwnColumns; ++j) {
            step_sums[i][j] =
                fmaf(shared.x[k][row(i)], shared.weight[k][column(j)], step_sums[i][j]);
          }
        }
      }
      ++step;
      move(step_sums, near);
      if (step % kSums == 0) move(near, far);
      if (step % (kSums * kSums) == 0) move(far, acc);
      __syncthreads();
    }
    move(near, far);
    move(far, acc);
  }

  __device__ static int row(int i) { return int(threadIdx.x) / kColumnsApart + kRowsApart * i; }
  __device__ static int column(int j) {
    return int(threadIdx.x) % kColumnsApart + kColumnsApart * j;
  }
};

using SimtBlock = SimtBlockOf<64>;

// The tiles of a product, among which blocks are shared out.
struct SimtTiles {
  static constexpr int kBlocksPerSm = 8;

  int64_t across, count;

  CUTLASS_FUSED_HOST_DEVICE explicit SimtTiles(GemmArgs const& gemm)
      : across(ceil_div(gemm.n, int64_t(SimtBlock::kColumns))),
        count(across * ceil_div(gemm.m, int64_t(SimtBlock::kRows))) {}

  CUTLASS_FUSED_HOST_DEVICE int64_t row(int64_t tile) const {
    return tile / across * SimtBlock::kRows;
  }
  CUTLASS_FUSED_HOST_DEVICE int64_t column(int64_t tile) const {
    return tile % across * SimtBlock::kColumns;
  }
  unsigned grid(Device const& device) const {
    return unsigned(std::min<int64_t>(count, int64_t(kBlocksPerSm) * device.sm_count));
  }
};

}  // namespace cutlass_fused
