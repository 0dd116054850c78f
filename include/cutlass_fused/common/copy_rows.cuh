// Copies rows of 16-bit elements of any alignment.
#pragma once

#include "cutlass_fused/common/copy_rows.hpp"
#include "cutlass_fused/common/launch.cuh"

namespace cutlass_fused {

struct CopyRowsParams {
  int64_t rows, columns;
  uint16_t const* from;
  int64_t ld_from;
  uint16_t* to;
  int64_t ld_to;
};

// Neighbouring threads move neighbouring elements, so that whole sectors come and go whatever the
// alignment; each has a few elements under way.
struct CopyBlock {
  static constexpr int kLanes = 64, kRows = 4, kUnderWay = 8;
};

static __global__ void __launch_bounds__(CopyBlock::kLanes* CopyBlock::kRows)
    copy_rows(__grid_constant__ CopyRowsParams const params) {
  constexpr int kLanes = CopyBlock::kLanes, kUnderWay = CopyBlock::kUnderWay;
  wait_for_previous_kernel();
  allow_next_kernel();
  int64_t const step = int64_t(gridDim.x) * CopyBlock::kRows;
  for (int64_t row = int64_t(blockIdx.x) * CopyBlock::kRows + threadIdx.y; row < params.rows;
       row += step) {
    uint16_t const* const from = params.from + row * params.ld_from;
    uint16_t* const to = params.to + row * params.ld_to;
    for (int64_t first = threadIdx.x; first < params.columns; first += kLanes * kUnderWay) {
      uint16_t elements[kUnderWay];
#pragma unroll
      for (int i = 0; i < kUnderWay; ++i) {
        int64_t const column = first + i * kLanes;
        if (column < params.columns) elements[i] = from[column];
      }
#pragma unroll
      for (int i = 0; i < kUnderWay; ++i) {
        int64_t const column = first + i * kLanes;
        if (column < params.columns) to[column] = elements[i];
      }
    }
  }
}

}  // namespace cutlass_fused
