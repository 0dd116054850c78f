// The mainloop of tf32x3 kernels: stages of a tile's operands, and the sums of their products.
#pragma once

#include "cutlass_fused/gemm/tf32x3/jobs.cuh"
#include "cutlass_fused/gemm/tf32x3/multiply.cuh"
#include "cutlass_fused/gemm/tf32x3/tiles.hpp"

namespace cutlass_fused::tf32x3 {

// X: the type of the numbers of x.
template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class X = float>
struct Mainloop {
  using LoaderX = typename LoaderOf<X, kMajorX, Tile::kM, Tile::kK, Tile::kThreads, kWhole>::type;
  using LoaderWeight = Loader<kMajorWeight, Tile::kN, Tile::kK, Tile::kThreads, kWhole>;
  using Feeder = tf32x3::Feeder<Tile, LoaderX, LoaderWeight>;
  static constexpr int kStageFloats = LoaderX::Stage::kFloats + LoaderWeight::Stage::kFloats;
  static constexpr int kPieces = Tile::kN / 4;  // of a row of outputs
  static_assert(Tile::kSharedBytes >= 4 * Tile::kWarpsK * Tile::kM * Tile::kN);
  static_assert(Tile::kK % (16 * Tile::kWarpsK) == 0);

  float* shared;
  int warp_m, warp_n, warp_k;  // of the warp in the tile

  __device__ explicit Mainloop(float* shared) : shared(shared) {
    int const warp = int(threadIdx.x) / 32;
    warp_m = warp % Tile::kWarpsM * Tile::kWarp;
    warp_n = warp / Tile::kWarpsM % Tile::kWarpsN * Tile::kWarp;
    warp_k = warp / (Tile::kWarpsM * Tile::kWarpsN);
  }

  // Numbers are read from shared memory and split while those before them are multiplied.
  template <class Loader, class Block>
  struct Operand {
    typename Loader::Stage::Values values;
    Block block;
  };
  using OperandX = Operand<LoaderX, typename BlockOf<X, kInTf32>::type>;
  using OperandWeight = Operand<LoaderWeight, SplitBlock<kInTf32>>;

  // Loads what is ahead of the first products, and splits the first numbers. load(stage) asks for
  // the next stage.
  template <class Load>
  __device__ void begin(Load const& load, int stage, OperandX& x, OperandWeight& weight) const {
#pragma unroll 1
    for (int i = 0; i < Tile::kStages - 1; ++i) load(i);
    begin_stage(load, stage, x, weight);
    x.block.split(x.values);
    weight.block.split(weight.values);
  }

  // The first numbers are split already. Then so are those of the next job, if there may be one.
  template <class Load>
  __device__ void add_products(int steps, Load const& load, int& stage, OperandX& x,
                               OperandWeight& weight, WarpSums& sums) const {
    constexpr int kSteps = Tile::kK / 16 / Tile::kWarpsK;  // of a warp in a stage
#pragma unroll 1
    for (int step = 1; step <= steps; ++step) {
#pragma unroll
      for (int i = 1; i <= kSteps; ++i) {
        if (i < kSteps) {
          read(stage, i, x, weight);
        } else {
          if (++stage == Tile::kStages) stage = 0;
          if (is_persistent<Tile> || step < steps) begin_stage(load, stage, x, weight);
        }
        WarpSums part;
        multiply(x.block, weight.block, part);
        x.block.split(x.values);
        weight.block.split(weight.values);
        add_sums(part, sums);
      }
    }
  }

  // The sums of a thread are four rows of two pieces, which are four neighbouring columns each.
  __device__ static float4 piece_of(WarpSums const& sums, int row, int column) {
    int const at = row % 2 * 2 + column;
    auto const& of_rows = sums[row / 2];
    return {of_rows[0][at], of_rows[1][at], of_rows[2][at], of_rows[3][at]};
  }
  __device__ int first_row() const { return warp_m + LoaderX::Stage::first_row(); }
  __device__ int piece_at(int column) const {
    return warp_n / 4 + int(threadIdx.x) % 4 + 4 * column;
  }

  // Writes the sums into shared memory, to where sums_at finds them.
  __device__ void share_sums(WarpSums const& sums) const {
    wait_for_copies<0>();
    __syncthreads();  // nobody reads the stages any more
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      *sums_at(shared, warp_k, first_row() + i / 2, piece_at(i % 2)) = piece_of(sums, i / 2, i % 2);
    }
  }

  // Four neighbouring sums of one of the warps that have a share of K each.
  __device__ static float4* sums_at(float* shared, int warp, int row, int piece) {
    int const order = (row >> 4 & 1) << 2;  // so that no bank is met twice
    return reinterpret_cast<float4*>(shared) + (warp * Tile::kM + row) * kPieces + (piece ^ order);
  }

 private:
  __device__ void read(int stage, int i, OperandX& x, OperandWeight& weight) const {
    float const* const from = shared + stage * kStageFloats;
    int const k = 16 * (i * Tile::kWarpsK + warp_k);
    LoaderX::Stage::read(from, warp_m, k, x.values);
    LoaderWeight::Stage::read(from + LoaderX::Stage::kFloats, warp_n, k, weight.values);
  }

  template <class Load>
  __device__ void begin_stage(Load const& load, int stage, OperandX& x,
                              OperandWeight& weight) const {
    wait_for_copies<Tile::kStages - 2>();
    __syncthreads();  // all have arrived, and nobody reads the stage that is filled next
    load(stage == 0 ? Tile::kStages - 1 : stage - 1);
    read(stage, 0, x, weight);
  }
};

}  // namespace cutlass_fused::tf32x3
