// Widens rows of 16-bit numbers of any alignment.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/mixed/widen_rows.hpp"

namespace cutlass_fused {

template <class T>
struct WidenRowsParams {
  int64_t rows, columns;
  T const* from;
  int64_t ld;
  float* to;
  int64_t pitch;
};

struct WidenBlock {
  static constexpr int kThreads = 256;
  static constexpr int kWidth = 8;  // numbers of a thread: 16 bytes are read, twice 16 written
};

// Threads of a row in x, rows in y. kAligned: rows of `from` begin at multiples of 16 bytes. Others
// are read one by one, by neighbouring threads side by side.
template <class T, bool kAligned>
__global__ void __launch_bounds__(WidenBlock::kThreads)
    widen_rows(__grid_constant__ WidenRowsParams<T> const params) {
  constexpr int kWidth = WidenBlock::kWidth;
  wait_for_previous_kernel();
  allow_next_kernel();
  // Unsigned: of 2^31 columns the last step leads beyond.
  unsigned const columns = unsigned(params.columns), threads = blockDim.x;
  int64_t const step = int64_t(gridDim.x) * blockDim.y;
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < params.rows;
       row += step) {
    T const* const from = params.from + row * params.ld;
    float* const to = params.to + row * params.pitch;
    if constexpr (kAligned) {
      // What is left behind the last whole piece is less than one.
      unsigned const whole = columns / kWidth * kWidth, rest = whole + threadIdx.x;
      for (unsigned first = threadIdx.x * kWidth; first < whole; first += threads * kWidth) {
        alignas(16) T narrow[kWidth];
        *reinterpret_cast<uint4*>(narrow) = *reinterpret_cast<uint4 const*>(from + first);
#pragma unroll
        for (int i = 0; i < kWidth; i += 4) {
          *reinterpret_cast<float4*>(to + first + i) =
              float4{to_float(narrow[i]), to_float(narrow[i + 1]), to_float(narrow[i + 2]),
                     to_float(narrow[i + 3])};
        }
      }
      if (rest < columns) to[rest] = to_float(from[rest]);
    } else {
      for (unsigned first = threadIdx.x; first < columns; first += threads * kWidth) {
        float wide[kWidth];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          if (first + i * threads < columns) wide[i] = to_float(from[first + i * threads]);
        }
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          if (first + i * threads < columns) to[first + i * threads] = wide[i];
        }
      }
    }
  }
}

}  // namespace cutlass_fused
