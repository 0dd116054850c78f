// y = epilogue(acc): reads an fp32 product, writes y.
#pragma once

#include <algorithm>

#include "cutlass_fused/epilogue/elements/apply.hpp"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/store.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct ApplyEpilogueParams {
  int64_t m, n;  // m: the rows of all products of a batch
  int64_t rows;  // of one of them
  float const* acc;
  void* y;
  int64_t ldy;
  DataType y_type;
  typename Columns<typename Epilogue::Tree>::Arguments operands;
};

struct ApplyEpilogueBlock {
  static constexpr int kLanes = 32, kRows = 8;
  static constexpr int kColumns = 4;  // of a thread
};

// A thread keeps the Row operands of its columns and walks down the rows. Neighbouring threads have
// neighbouring columns, so that whole sectors come and go whatever the alignment.
template <class Epilogue>
__global__ void __launch_bounds__(ApplyEpilogueBlock::kLanes* ApplyEpilogueBlock::kRows)
    apply_epilogue(__grid_constant__ ApplyEpilogueParams<Epilogue> const params) {
  using Operands = Columns<typename Epilogue::Tree>;
  constexpr int kLanes = ApplyEpilogueBlock::kLanes, kColumns = ApplyEpilogueBlock::kColumns;
  wait_for_previous_kernel();
  int64_t const first = int64_t(blockIdx.x) * kLanes * kColumns + threadIdx.x;
  float operands[kColumns][Operands::kRows > 0 ? Operands::kRows : 1];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    int64_t const n = first + i * kLanes;
    if (n < params.n) Operands::load(params.operands, n, operands[i], 1);
  }
  int64_t const step = int64_t(gridDim.y) * ApplyEpilogueBlock::kRows;
  for (int64_t m = int64_t(blockIdx.y) * ApplyEpilogueBlock::kRows + threadIdx.y; m < params.m;
       m += step) {
    float acc[kColumns] = {};
    typename Operands::Elements elements[kColumns];
    // An operand of y's shape is read, as acc is, before anything is written.
    int64_t const b = Operands::kTiles > 0 && params.rows < params.m ? m / params.rows : 0;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      int64_t const n = first + i * kLanes;
      if (n < params.n) {
        acc[i] = params.acc[m * params.n + n];
        elements[i] = Operands::fetch(params.operands, m - b * params.rows, n, b);
      }
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      int64_t const n = first + i * kLanes;
      float const value = Operands::apply(params.operands, operands[i], 1, acc[i],
                                          m - b * params.rows, n, elements[i]);
      if (n < params.n) store_from_float(params.y, m * params.ldy + n, params.y_type, value);
    }
  }
}

template <class Epilogue>
Status run_apply_epilogue(GemmArgs const& gemm, int64_t batch, float const* acc,
                          typename Epilogue::Args const& epilogue, Device const& device,
                          cudaStream_t stream) {
  constexpr int kBlocksPerSm = 8, kMostRows = 65535;
  int64_t const all_rows = batch * gemm.m;
  ApplyEpilogueParams<Epilogue> const params{
      all_rows,    gemm.n,
      gemm.m,      acc,
      gemm.y,      gemm.ldy,
      gemm.y_type, Evaluator<typename Epilogue::Tree>::pack(epilogue.operands())};
  int64_t const columns =
      ceil_div(gemm.n, ApplyEpilogueBlock::kLanes * ApplyEpilogueBlock::kColumns);
  int64_t const fill = ceil_div(int64_t(kBlocksPerSm) * device.sm_count, columns);
  int64_t const rows =
      std::min<int64_t>({ceil_div(all_rows, ApplyEpilogueBlock::kRows), fill, kMostRows});
  dim3 const grid{unsigned(columns), unsigned(rows)};
  dim3 const block(ApplyEpilogueBlock::kLanes, ApplyEpilogueBlock::kRows);
  return KernelLaunch{device, stream, grid, block}(apply_epilogue<Epilogue>, params);
}

}  // namespace cutlass_fused
