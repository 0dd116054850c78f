// A plain fp32 product on CUDA cores: one rounding per multiply-add, in order of k.
//
// It serves where the tensor cores cannot: K of 32 or less under "ieee" (there fp32 itself is more
// accurate than three TF32 products, and the product is bound by memory anyway), K = 0, and the
// repair of what a split engine turned into NaN (repair.hpp). Simple rather than quick: 64x64
// outputs per block, 4x4 per thread.
#pragma once

#include <cuda_runtime.h>

#include "cutlass_fused/epilogue/evaluate.hpp"
#include "cutlass_fused/gemm/heuristic.hpp"
#include "cutlass_fused/kernel/repair.hpp"
#include "cutlass_fused/kernel/store.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct SimtParams {
  GemmArgs gemm;
  typename Evaluator<typename Epilogue::Tree>::Arguments operands;
  uint8_t const* flags;  // only marked blocks, and in them only NaNs; null: everything
};

template <DataType kType>
__device__ __forceinline__ float load_as_float(void const* data, int64_t offset) {
  return Vector{data, 1, kType, 0.0f}(offset);
}

template <class Math, class Epilogue>
__global__ void __launch_bounds__(256)
    gemm_simt(__grid_constant__ SimtParams<Epilogue> const params) {
  constexpr int kTile = RepairFlags::kBlock;
  constexpr int kStep = 16;  // of K
  __shared__ float x_tile[kStep][kTile + 1], w_tile[kStep][kTile + 1];

  GemmArgs const& gemm = params.gemm;
  int64_t const blocks_n = (gemm.n + kTile - 1) / kTile;
  int64_t const blocks = (gemm.m + kTile - 1) / kTile * blocks_n;
  int const thread_n = threadIdx.x % 16, thread_m = threadIdx.x / 16;

  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    if (params.flags != nullptr && params.flags[block] == 0) continue;
    int64_t const m0 = block / blocks_n * kTile, n0 = block % blocks_n * kTile;
    float acc[4][4] = {};

    for (int64_t k0 = 0; k0 < gemm.k; k0 += kStep) {
      for (int i = threadIdx.x; i < kTile * kStep; i += 256) {
        int const row = i / kStep, k = i % kStep;
        bool const in_k = k0 + k < gemm.k;
        x_tile[k][row] = in_k && m0 + row < gemm.m
                             ? load_as_float<Math::kIn>(gemm.x, (m0 + row) * gemm.ldx + k0 + k)
                             : 0.0f;
        w_tile[k][row] = in_k && n0 + row < gemm.n
                             ? load_as_float<Math::kIn>(gemm.weight, (n0 + row) * gemm.ldw + k0 + k)
                             : 0.0f;
      }
      __syncthreads();
      int const depth = gemm.k - k0 < kStep ? int(gemm.k - k0) : kStep;
      for (int k = 0; k < depth; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            acc[i][j] = fmaf(x_tile[k][thread_m + 16 * i], w_tile[k][thread_n + 16 * j], acc[i][j]);
          }
        }
      }
      __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        int64_t const m = m0 + thread_m + 16 * i, n = n0 + thread_n + 16 * j;
        if (m >= gemm.m || n >= gemm.n) continue;
        int64_t const offset = m * gemm.ldy + n;
        if (params.flags != nullptr) {
          float const old = Vector{gemm.y, 1, gemm.y_type, 0.0f}(offset);
          if (old == old) continue;
        }
        store_from_float(
            gemm.y, offset, gemm.y_type,
            Evaluator<typename Epilogue::Tree>::apply(params.operands, acc[i][j], m, n));
      }
    }
  }
}

// Launches it over all of y, or over the marked blocks only. Four blocks per SM fill the GPU; each
// walks over its share of the 64x64 blocks.
template <class Math, class Epilogue>
void launch_gemm_simt(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                      uint8_t const* flags, Device const& device, cudaStream_t stream) {
  int64_t const blocks = int64_t(RepairFlags::bytes(gemm.m, gemm.n));
  int64_t const grid = std::min<int64_t>(blocks, 4 * device.sm_count);
  SimtParams<Epilogue> const params{
      gemm, Evaluator<typename Epilogue::Tree>::pack(epilogue.operands()), flags};
  gemm_simt<Math, Epilogue><<<dim3(unsigned(grid)), dim3(256), 0, stream>>>(params);
}

}  // namespace cutlass_fused
