// A plain fp32 product on CUDA cores. It serves where tensor cores gain nothing: short K, for which
// fp32 itself is more accurate than split numbers and memory is the limit (short_k.cuh), and a K
// that is too long to be split.
#pragma once

#include <algorithm>

#include "cutlass_fused/epilogue/elements/evaluate.hpp"
#include "cutlass_fused/gemm/simt/run.hpp"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/simt/block.cuh"
#include "cutlass_fused/gemm/simt/short_k.cuh"
#include "cutlass_fused/common/store.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct SimtParams {
  GemmArgs gemm;
  typename Evaluator<typename Epilogue::Tree>::Arguments operands;
};

template <class Epilogue>
__global__ void __launch_bounds__(SimtBlock::kThreads)
    gemm_simt(__grid_constant__ SimtParams<Epilogue> const params) {
  __shared__ SimtBlock::Shared shared;
  wait_for_previous_kernel();
  allow_next_kernel();
  GemmArgs const& gemm = params.gemm;
  SimtTiles const tiles(gemm);
  for (int64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    int64_t const m0 = tiles.row(tile), n0 = tiles.column(tile);
    SimtBlock::Sums acc = {};
    SimtBlock::multiply(gemm, FloatReader{gemm.x, gemm.ldx}, FloatReader{gemm.weight, gemm.ldw}, m0,
                        n0, shared, acc);
#pragma unroll
    for (int i = 0; i < SimtBlock::kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < SimtBlock::kOwnColumns; ++j) {
        int64_t const m = m0 + SimtBlock::row(i), n = n0 + SimtBlock::column(j);
        if (m >= gemm.m || n >= gemm.n) continue;
        float const value =
            Evaluator<typename Epilogue::Tree>::apply(params.operands, acc[i][j], m, n);
        store_from_float(gemm.y, m * gemm.ldy + n, gemm.y_type, value);
      }
    }
  }
}

template <class Epilogue>
Status run_gemm_simt(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                     Device const& device, cudaStream_t stream) {
  if (reads_any_major(gemm.k)) return run_short_k<Epilogue>(gemm, epilogue, device, stream);
  SimtParams<Epilogue> const params{gemm,
                                    Evaluator<typename Epilogue::Tree>::pack(epilogue.operands())};
  dim3 const grid(SimtTiles(gemm).grid(device));
  return KernelLaunch{device, stream, grid, dim3(SimtBlock::kThreads)}(gemm_simt<Epilogue>, params);
}

}  // namespace cutlass_fused
