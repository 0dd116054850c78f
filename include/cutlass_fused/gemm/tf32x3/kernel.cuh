// A product of fp32 matrices in one launch, from the matrices as they lie: tf32x3, split in
// registers. It serves where a pass that splits rows beforehand would cost more than it saves.
#pragma once

#include <cooperative_groups.h>

#include <algorithm>
#include <cmath>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/store.cuh"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/gemm/tf32x3/load.cuh"
#include "cutlass_fused/gemm/tf32x3/multiply.cuh"
#include "cutlass_fused/gemm/tf32x3/tiles.hpp"

namespace cutlass_fused {

template <class Epilogue>
struct Tf32x3Params {
  FloatProduct product;
  typename Columns<typename Epilogue::Tree>::Arguments operands;
  int tiles_m;
  int slices;                // of K, a block of a cluster each
  bool stores_whole_pieces;  // four numbers of y at once
};

namespace tf32x3 {

// Sums of this many times 16 of K are added to a sum of their own: over all of K at once the
// rounding of fp32 would be above that of cuBLAS, which splits K. Four warps that share K have few
// enough each, and no registers for a second sum.
constexpr int kNear = 8;
template <class Tile>
constexpr bool sums_near = Tile::kWarpsK < 4;

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, class Epilogue>
struct Kernel {
  using Operands = Columns<typename Epilogue::Tree>;
  using LoaderX = Loader<kMajorX, Tile::kM, Tile::kK, Tile::kThreads, kWhole>;
  using LoaderWeight = Loader<kMajorWeight, Tile::kN, Tile::kK, Tile::kThreads, kWhole>;
  static constexpr int kStageFloats = LoaderX::Stage::kFloats + LoaderWeight::Stage::kFloats;
  static constexpr int kPieces = Tile::kN / 4;  // of a row of outputs
  static constexpr int kRowStep = Tile::kThreads / kPieces;
  static_assert(Tile::kSharedBytes >= 4 * Tile::kWarpsK * Tile::kM * Tile::kN);
  static_assert(Tile::kK % (16 * Tile::kWarpsK) == 0 && Tile::kThreads % kPieces == 0);

  Tf32x3Params<Epilogue> const& params;
  float* shared;
  int slice, warp_k;
  int m0, n0;          // of the tile
  int warp_m, warp_n;  // of the warp in it
  int k_begin, k_end;  // of the block

  __device__ Kernel(Tf32x3Params<Epilogue> const& params, float* shared)
      : params(params), shared(shared) {
    int const tile = int(blockIdx.x) / params.slices, warp = int(threadIdx.x) / 32;
    slice = int(blockIdx.x) % params.slices;
    m0 = tile % params.tiles_m * Tile::kM;
    n0 = tile / params.tiles_m * Tile::kN;
    warp_m = warp % Tile::kWarpsM * Tile::kWarp;
    warp_n = warp / Tile::kWarpsM % Tile::kWarpsN * Tile::kWarp;
    warp_k = warp / (Tile::kWarpsM * Tile::kWarpsN);
    int const k = int(params.product.k), steps = (k + Tile::kK - 1) / Tile::kK;
    k_begin = int(int64_t(steps) * slice / params.slices) * Tile::kK;
    k_end = min(k, int(int64_t(steps) * (slice + 1) / params.slices) * Tile::kK);
  }

  __device__ void run() const {
    WarpSums sums = {};
    add_products(sums);
    __syncthreads();  // nobody reads the stages any more
    put(sums);
    bool const has_slices = params.slices > 1;
    if (has_slices) {
      sync_cluster();
    } else {
      __syncthreads();
    }
    store_rows();
    if (has_slices) sync_cluster();  // others may still read this block's sums
  }

 private:
  __device__ void add_products(WarpSums& sums) const {
    FloatProduct const& product = params.product;
    LoaderX x(product.x, blockIdx.z, m0, int(product.m), k_begin);
    LoaderWeight weight(product.weight, blockIdx.z, n0, int(product.n), k_begin);
    int const steps = (k_end - k_begin + Tile::kK - 1) / Tile::kK;
    auto const stage_at = [&](int step) { return shared + step % Tile::kStages * kStageFloats; };
    auto const load = [&](int step) {
      if (step < steps) {
        int const k_left = k_end - k_begin - step * Tile::kK;
        x.load(stage_at(step), k_left);
        weight.load(stage_at(step) + LoaderX::Stage::kFloats, k_left);
      }
      close_group();
    };
#pragma unroll 1
    for (int i = 0; i < Tile::kStages - 1; ++i) load(i);

    WarpSums part;
    [[maybe_unused]] WarpSums near = {};
    [[maybe_unused]] int summed = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<Tile::kStages - 2>();
      __syncthreads();  // all have arrived, and nobody reads the stage that is filled next
      load(step + Tile::kStages - 1);
#pragma unroll
      for (int i = 0; i < Tile::kK / 16 / Tile::kWarpsK; ++i) {
        int const k = 16 * (i * Tile::kWarpsK + warp_k);
        float values[4][4];
        LoaderX::Stage::read(stage_at(step), warp_m, k, values);
        SplitBlock const a(values);
        LoaderWeight::Stage::read(stage_at(step) + LoaderX::Stage::kFloats, warp_n, k, values);
        SplitBlock const b(values);
        multiply(a, b, part);
        if constexpr (!sums_near<Tile>) {
          add_sums(part, sums);
        } else {
          add_sums(part, near);
          if (++summed % kNear == 0) move_sums(near, sums);
        }
      }
    }
    if constexpr (sums_near<Tile>) add_sums(near, sums);
    wait_for_copies<0>();
  }

  // Four neighbouring sums of one of the warps that have a share of K each.
  __device__ float4* sums_at(int warp, int row, int piece) const {
    int const order = (row >> 4 & 1) << 2;  // so that no bank is met twice
    return reinterpret_cast<float4*>(shared) + (warp * Tile::kM + row) * kPieces + (piece ^ order);
  }

  __device__ void put(WarpSums const& sums) const {
    int const row = warp_m + LoaderX::Stage::first_row();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      int const slot = i / 2, column = i % 2, at = slot % 2 * 2 + column;
      auto const& of_rows = sums[slot / 2];
      *sums_at(warp_k, row + slot, warp_n / 4 + int(threadIdx.x) % 4 + 4 * column) = {
          of_rows[0][at], of_rows[1][at], of_rows[2][at], of_rows[3][at]};
    }
  }

  __device__ static void sync_cluster() {
#if __CUDA_ARCH__ >= 900
    cooperative_groups::this_cluster().sync();
#endif
  }
  __device__ float4 read_sums(float4* at, int rank) const {
#if __CUDA_ARCH__ >= 900
    if (params.slices > 1) return *cooperative_groups::this_cluster().map_shared_rank(at, rank);
#endif
    return *at;
  }

  // Adds up the sums of all shares of K in their order; the rows of a tile are shared out among the
  // slices' blocks.
  __device__ void store_rows() const {
    int const piece = int(threadIdx.x) % kPieces, n = n0 + piece * 4;
    if (n >= params.product.n) return;
    float operands[4 * (Operands::kRows > 0 ? Operands::kRows : 1)];
    int64_t const last = params.product.n - 1;
    int64_t const columns[4] = {n, std::min<int64_t>(n + 1, last), std::min<int64_t>(n + 2, last),
                                std::min<int64_t>(n + 3, last)};
    Operands::load(params.operands, columns, operands, 4);
    int const step = params.slices * kRowStep, rows = int(params.product.m) - m0;
    // The sums of several rows are read before the first is stored: the compiler does not know that
    // these are different memories.
    constexpr int kBatch = Tile::kM / kRowStep < 4 ? Tile::kM / kRowStep : 4;
#pragma unroll 1
    for (int first = int(threadIdx.x) / kPieces + slice * kRowStep; first < min(Tile::kM, rows);
         first += kBatch * step) {
      float values[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * step < Tile::kM) add_up(first + i * step, piece, values[i]);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        int const row = first + i * step;
        if (row < min(Tile::kM, rows)) store(m0 + row, n, values[i], operands);
      }
    }
  }

  __device__ void add_up(int row, int piece, float (&values)[4]) const {
    float4 sum = add_up_warps(row, piece, 0);
#pragma unroll 1
    for (int rank = 1; rank < params.slices; ++rank) add(sum, add_up_warps(row, piece, rank));
    values[0] = sum.x * kUnscale;
    values[1] = sum.y * kUnscale;
    values[2] = sum.z * kUnscale;
    values[3] = sum.w * kUnscale;
  }

  __device__ float4 add_up_warps(int row, int piece, int rank) const {
    float4 sum = read_sums(sums_at(0, row, piece), rank);
#pragma unroll
    for (int warp = 1; warp < Tile::kWarpsK; ++warp) {
      add(sum, read_sums(sums_at(warp, row, piece), rank));
    }
    return sum;
  }

  __device__ static void add(float4& sum, float4 const& other) {
    sum.x += other.x;
    sum.y += other.y;
    sum.z += other.z;
    sum.w += other.w;
  }

  __device__ void store(int m, int n, float (&values)[4], float const* operands) const {
    bool lost = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) lost |= !isfinite(values[i]);
    float4 sums{values[0], values[1], values[2], values[3]};
    if (lost) sums = repair(params.product, m, n, sums);
    sums.x = Operands::apply(params.operands, operands + 0, 4, sums.x, m);
    sums.y = Operands::apply(params.operands, operands + 1, 4, sums.y, m);
    sums.z = Operands::apply(params.operands, operands + 2, 4, sums.z, m);
    sums.w = Operands::apply(params.operands, operands + 3, 4, sums.w, m);
    FloatProduct const& product = params.product;
    int64_t const offset = blockIdx.z * product.y_batch_stride + m * product.ldy + n;
    if (params.stores_whole_pieces && n + 4 <= product.n) {
      *reinterpret_cast<float4*>(static_cast<float*>(product.y) + offset) = sums;
    } else {
      store_elements(product, offset, int(product.n) - n, sums);
    }
  }

  // The rare ways below are functions of their own, to keep what every block runs through short.
  __device__ __noinline__ static void store_elements(FloatProduct const& product, int64_t offset,
                                                     int count, float4 sums) {
#pragma unroll 1
    for (int i = 0; i < 4 && i < count; ++i) {
      store_from_float(product.y, offset + i, product.y_type, sums.x);
      sums = {sums.y, sums.z, sums.w, 0.0f};
    }
  }

  // What is not finite, in plain fp32: where a number is infinite, or scaled
  // becomes so, its lo is NaN. A sum that is NaN remains so.
  __device__ __noinline__ static float4 repair(FloatProduct const& product, int m, int n,
                                               float4 sums) {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      float sum = sums.x;
      if (!isfinite(sum) && n + i < product.n) {
        sum = 0.0f;
#pragma unroll 1
        for (int k = 0; k < product.k && !isnan(sum); ++k) {
          sum = fmaf(read<kMajorX>(product.x, m, k), read<kMajorWeight>(product.weight, n + i, k),
                     sum);
        }
      }
      sums = {sums.y, sums.z, sums.w, sum};
    }
    return sums;
  }

  template <Major kMajor>
  __device__ static float read(FloatOperand const& operand, int row, int k) {
    int64_t const at = kMajor == Major::kK ? row * operand.ld + k : k * operand.ld + row;
    return operand.data[blockIdx.z * operand.batch_stride + at];
  }
};

}  // namespace tf32x3

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_tf32x3(__grid_constant__ Tf32x3Params<Epilogue> const params) {
  extern __shared__ __align__(128) float shared[];
  wait_for_previous_kernel();
  allow_next_kernel();
  tf32x3::Kernel<Tile, kMajorX, kMajorWeight, kWhole, Epilogue>(params, shared).run();
}

}  // namespace cutlass_fused
