// tf32x3 by WGMMA: the three products of gemm/tf32x3/multiply.cuh, of x in registers and a weight
// in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "cute/arch/mma_sm90_gmma.hpp"
#include "cutlass_fused/gemm/tf32x3/multiply.cuh"
#include "cutlass_fused/gemm/tf32x3_sm90/stage.hpp"

namespace cutlass_fused::tf32x3_sm90 {

// What WGMMA is told of rows in shared memory, of which eight fill a swizzle of 128 bytes.
__device__ __forceinline__ uint64_t describe_rows(char const* rows) {
  constexpr uint64_t kSwizzle128 = uint64_t(1) << 62;
  constexpr uint64_t kEightRows = uint64_t(8 * SwizzledRows::kBytes / 16) << 32;
  uint32_t const at = uint32_t(__cvta_generic_to_shared(rows));
  return kSwizzle128 | kEightRows | at >> 4;
}

template <int kColumns>
struct Instruction;
template <>
struct Instruction<64> {
  using type = cute::SM90::GMMA::MMA_64x64x8_F32TF32TF32_RS_TN<>;
};
template <>
struct Instruction<128> {
  using type = cute::SM90::GMMA::MMA_64x128x8_F32TF32TF32_RS_TN<>;
};

// Of 64 rows by kColumns: those of a thread, of a warpgroup.
template <int kColumns>
struct WarpgroupSums {
  static constexpr int kCount = kColumns / 2;
  float values[kCount];

  // The values of a thread are groups of four: two neighbouring columns of its row, and those of
  // the row eight behind that. The next group is eight columns further.
  __device__ static int first_row() {
    return int(threadIdx.x) % 128 / 32 * 16 + int(threadIdx.x) % 32 / 4;
  }
  __device__ static int first_column() { return int(threadIdx.x) % 4 * 2; }

  __device__ __forceinline__ void add(WarpgroupSums const& other) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += other.values[i];
  }
  // So that the compiler moves no use of them past here.
  __device__ __forceinline__ void fence() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
  }
};

// 64 rows of x over a stage, as instructions read them from registers.
struct SplitFragment {
  static constexpr int kSteps = SwizzledRows::kK / 8;
  uint32_t high[kSteps][4], low[kSteps][4];

  // Of the rows from first_row on of a stage of kRows.
  template <Major kMajor, int kRows>
  __device__ __forceinline__ void read(char const* stage, int first_row) {
    int const thread = int(threadIdx.x) % 128;
    int const row = first_row + thread / 32 * 16 + thread % 32 / 4, k = thread % 4;
    constexpr bool kAlongK = kMajor == Major::kK;
    int first = kAlongK ? SwizzledRows::offset(row, 0) + k * 4
                        : SwizzledColumns<kRows>::offset(k, row / 4) + row % 4 * 4;
    asm volatile("" : "+r"(first));  // else the offsets of all numbers take registers
#pragma unroll
    for (int four = 0; four < SwizzledRows::kK / 4; ++four) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // the number of k + 4 * four, of row + 8 * i
        int const at = kAlongK ? (first ^ four * 16) + i * 8 * SwizzledRows::kBytes
                               : (first ^ i * 32) + four * 4 * kRows * 4;
        float const number = *reinterpret_cast<float const*>(stage + at);
        int const step = four / 2, slot = four % 2 * 2 + i;
        tf32x3::split_number<false>(number, high[step][slot], low[step][slot]);
      }
    }
  }
};

template <int kColumns, size_t... kIndex>
__device__ __forceinline__ void add_product(uint32_t const (&a)[4], uint64_t b, bool is_first,
                                            WarpgroupSums<kColumns>& sums,
                                            std::index_sequence<kIndex...>) {
  using cute::SM90::GMMA::ScaleOut;
  Instruction<kColumns>::type::fma(a[0], a[1], a[2], a[3], b, sums.values[kIndex]...,
                                   is_first ? ScaleOut::Zero : ScaleOut::One);
}

// sums = a * b over a stage. The small products come first: the tensor cores' accumulator
// truncates, the more the larger it is. They may still run when this returns, the last of them as a
// group of their own.
template <int kColumns>
__device__ __forceinline__ void multiply_stage(SplitFragment& a, char const* b_high,
                                               char const* b_low, WarpgroupSums<kColumns>& sums) {
  constexpr int kStep = 8 * 4 / 16;  // of an instruction
  constexpr auto kIndices = std::make_index_sequence<WarpgroupSums<kColumns>::kCount>();
  uint64_t const high = describe_rows(b_high), low = describe_rows(b_low);
  sums.fence();
  cute::warpgroup_arrive();
#pragma unroll
  for (int i = 0; i < SplitFragment::kSteps; ++i) {
    add_product(a.low[i], high + i * kStep, i == 0, sums, kIndices);
    add_product(a.high[i], low + i * kStep, false, sums, kIndices);
  }
  cute::warpgroup_commit_batch();
#pragma unroll
  for (int i = 0; i < SplitFragment::kSteps; ++i) {
    add_product(a.high[i], high + i * kStep, false, sums, kIndices);
  }
  cute::warpgroup_commit_batch();
}

// Until they have run.
template <int kColumns>
__device__ __forceinline__ void wait_for_products(WarpgroupSums<kColumns>& sums) {
  cute::warpgroup_wait<0>();
  sums.fence();
}

}  // namespace cutlass_fused::tf32x3_sm90
