// Row softmax of rows that no registers hold:  y[m, :] = softmax(x[m, :] * scale)
//
// One block to a row. The first read adds up the exponentials, each thread behind a shift of its
// own, and keeps in shared memory what that holds; only the rest is read again.
//
// On SM90 it serves what row_softmax_stream_sm90.cuh does not: a change of type, rows that no
// cluster holds, and rows of y that lie otherwise on 16 bytes than those of x.
#pragma once

#include "cutlass_fused/softmax/row_softmax.cuh"

namespace cutlass_fused {

// The sum of exp(v - shift) over a thread's elements. The shift is above the maximum of the first
// of them, and follows only a later one that exceeds it by far: as long as it stays, the
// exponentials are the very numbers that are written at the end. Factors that many of them share
// are in double, for their error would be that of the row's sum. It is a whole number
// (round_shift).
struct ShiftedSum {
  static constexpr float kMostAbove = 16.0f;
  static constexpr double kRange = 1 << 24;  // above exp(kMostAbove)
  float shift = -INFINITY;
  double sum = 0.0;

  __device__ __forceinline__ void follow(float max) {
    if (max > shift + kMostAbove) {
      float const next = round_shift(max);
      if (shift != -INFINITY) sum *= exp(double(shift) - double(next));
      shift = next;
    }
  }

  // What is subtracted: in a part of -inf, which adds 0, exp(-inf - -inf) would be NaN.
  __device__ __forceinline__ float subtrahend() const { return shift == -INFINITY ? 0.0f : shift; }
};

// Threads, and elements that each of them handles at a time: as many as 64 registers allow.
constexpr int kWideThreads = 512;
template <DataType kIn, Access kAccess>
constexpr int kWideElements = kAccess != Access::kElements && kIn != DataType::kFloat32 ? 16 : 8;

// `kept` iterations, of kWideThreads * kWideElements columns each, stay in shared memory.
template <DataType kIn, DataType kOut, Access kAccess>
__global__ void __launch_bounds__(kWideThreads, 2)
    row_softmax_wide(__grid_constant__ RowSoftmaxParams<Scaled> const params, int kept) {
  using In = Storage<kIn>;
  using Out = Storage<kOut>;
  constexpr int kWidth = kPieceWidth<kIn>;
  constexpr int kPieces = kWideElements<kIn, kAccess> / kWidth;
  extern __shared__ uint4 row_shared[];
  __shared__ RowSlots<float> max_slots;
  __shared__ RowSlots<double> sum_slots;
  int const rows = int(params.rows), columns = int(params.columns);
  int shift = 0;  // of the row
  float scale = 1.0f;
  auto const piece = [&](int iteration, int p) {
    int const thread = (iteration * kPieces + p) * kWideThreads + threadIdx.x / 32 * 32;
    return Piece<kWidth, kAccess>(thread * kWidth, threadIdx.x % 32, shift);
  };
  // A thread reads back what it wrote itself: no barrier between the two.
  auto const place = [&](int iteration, int p) -> uint4& {
    return row_shared[(iteration * kPieces + p) * kWideThreads + threadIdx.x];
  };
  auto const convert = [&](int iteration, int p, In const(&raw)[kWidth], float (&v)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      v[i] = piece(iteration, p).holds(i, columns) ? to_float(raw[i]) * scale : -INFINITY;
    }
  };

  wait_for_previous_kernel();
  scale = params.prologue.factor();
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    In const* const x = static_cast<In const*>(params.x) + row * params.ldx;
    Out* const y = static_cast<Out*>(params.y) + int64_t(row) * columns;
    shift = find_shift<kAccess>(x);
    int const iterations =
        int(ceil_div(columns + shift, kWideThreads * kWideElements<kIn, kAccess>));
    float v[kPieces][kWidth];
    alignas(16) In raw[kPieces][kWidth];

    ShiftedSum own;
    for (int iteration = 0; iteration < iterations; ++iteration) {
#pragma unroll
      for (int p = 0; p < kPieces; ++p) piece(iteration, p).load(x, columns, raw[p]);
      float max = -INFINITY;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (iteration < kept) place(iteration, p) = *reinterpret_cast<uint4 const*>(raw[p]);
        convert(iteration, p, raw[p], v[p]);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) max = fmaxf(max, v[p][i]);
      }
      own.follow(max);
      std::conditional_t<kOut == DataType::kFloat32, double, float> sum = 0;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum += exponential<kOut>(v[p][i] - own.subtrahend());
      }
      own.sum += sum;
    }
    // In a row of nothing but -inf the factor is NaN; so is the sum of one that holds a NaN or
    // +inf.
    float const max = reduce_row(own.shift, max_slots, -INFINITY, TakeMax{});
    double const factor = exp(double(own.shift) - double(max));
    double const sum = reduce_row(own.sum * factor, sum_slots, 0.0, TakeSum{});
    // A small factor and a large exponential may meet: the range is taken out behind the product.
    MultiplyBy<kOut> const divide(factor / sum * ShiftedSum::kRange);
    constexpr float kInverseRange = float(1.0 / ShiftedSum::kRange);

    // Backwards: what was read last is still in L2, if not in shared memory.
    for (int iteration = iterations - 1; iteration >= 0; --iteration) {
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (iteration < kept) {
          *reinterpret_cast<uint4*>(raw[p]) = place(iteration, p);
        } else {
          piece(iteration, p).load(x, columns, raw[p]);
        }
      }
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        convert(iteration, p, raw[p], v[p]);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          v[p][i] = divide(exponential<kOut>(v[p][i] - own.subtrahend())) * kInverseRange;
        }
        piece(iteration, p).store(v[p], y, columns);
      }
    }
  }
}

}  // namespace cutlass_fused
