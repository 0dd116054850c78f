// A product of fp32 matrices in one launch, from the matrices as they lie: tf32x3, split in
// registers. It serves where a pass that splits rows beforehand would cost more than it saves.
#pragma once

#include <cooperative_groups.h>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/tf32x3/jobs.cuh"
#include "cutlass_fused/gemm/tf32x3/multiply.cuh"
#include "cutlass_fused/gemm/tf32x3/store.cuh"
#include "cutlass_fused/gemm/tf32x3/tiles.hpp"

namespace cutlass_fused {

template <class Epilogue>
struct Tf32x3Params {
  FloatProduct product;
  typename Columns<typename Epilogue::Tree>::Arguments operands;
  Tf32x3Jobs jobs;
  int count;                 // of the jobs
  bool stores_whole_pieces;  // four numbers of y at once
  bool is_bare;              // the epilogue changes nothing
  // Of products whose K is cut into parts: the sums of each part, and how many parts of each
  // block's rows are there already.
  float* partial_sums;
  unsigned* arrived;
};

namespace tf32x3 {

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class Epilogue>
struct Kernel {
  using LoaderX = Loader<kMajorX, Tile::kM, Tile::kK, Tile::kThreads, kWhole>;
  using LoaderWeight = Loader<kMajorWeight, Tile::kN, Tile::kK, Tile::kThreads, kWhole>;
  using Store = tf32x3::Store<kMajorX, kMajorWeight, Epilogue>;
  using Operands = typename Store::Operands;
  static constexpr int kStageFloats = LoaderX::Stage::kFloats + LoaderWeight::Stage::kFloats;
  static constexpr int kPieces = Tile::kN / 4;  // of a row of outputs
  static constexpr int kRowStep = Tile::kThreads / kPieces;
  static_assert(Tile::kSharedBytes >= 4 * Tile::kWarpsK * Tile::kM * Tile::kN);
  static_assert(Tile::kK % (16 * Tile::kWarpsK) == 0 && Tile::kThreads % kPieces == 0);

  Tf32x3Params<Epilogue> const& params;
  float* shared;
  int slice, warp_k;
  int warp_m, warp_n;  // of the warp in the tile

  __device__ Kernel(Tf32x3Params<Epilogue> const& params, float* shared)
      : params(params), shared(shared) {
    int const warp = int(threadIdx.x) / 32;
    slice = int(blockIdx.x) % params.jobs.slices;
    warp_m = warp % Tile::kWarpsM * Tile::kWarp;
    warp_n = warp / Tile::kWarpsM % Tile::kWarpsN * Tile::kWarp;
    warp_k = warp / (Tile::kWarpsM * Tile::kWarpsN);
  }

  __device__ void run() const {
    Tf32x3Jobs const& jobs = params.jobs;
    Job job = locate(int(blockIdx.x) / jobs.slices);
    Feeder<Tile, LoaderX, LoaderWeight> feeder(params.product, jobs, job);
    int const step = int(gridDim.x) / jobs.slices;
    wait_for_previous_kernel();
    allow_next_kernel();
    auto const load = [&](int stage) {
      feeder.load(shared + stage * kStageFloats, step, params.count);
    };
#pragma unroll 1
    for (int i = 0; i < Tile::kStages - 1; ++i) load(i);
    int stage = 0;
    Operand x, weight;
    begin_stage(load, stage, x, weight);
    x.block.split(x.values);
    weight.block.split(weight.values);
#pragma unroll 1
    for (;;) {
      WarpSums sums = {};
      add_products(job.template steps<Tile>(), load, stage, x, weight, sums);
      if (!stores_directly()) return exchange_sums(job, sums);
      store_sums(job, sums);
      int const next = job.number + step;
      if (next >= params.count) return;
      job = locate(next);
    }
  }

 private:
  // Whether the sums of a warp are complete, so that they need not be exchanged.
  __device__ bool stores_directly() const {
    return is_persistent<Tile> && params.jobs.slices * params.jobs.parts == 1;
  }

  __device__ Job locate(int number) const {
    return Job::locate(params.jobs, int(params.product.k), number, Tile{});
  }

  // Numbers are read from shared memory and split while those before them are multiplied.
  struct Operand {
    Values values;
    SplitBlock<kInTf32> block;
  };

  __device__ void read(int stage, int i, Operand& x, Operand& weight) const {
    float const* const from = shared + stage * kStageFloats;
    int const k = 16 * (i * Tile::kWarpsK + warp_k);
    LoaderX::Stage::read(from, warp_m, k, x.values);
    LoaderWeight::Stage::read(from + LoaderX::Stage::kFloats, warp_n, k, weight.values);
  }

  template <class Load>
  __device__ void begin_stage(Load const& load, int stage, Operand& x, Operand& weight) const {
    wait_for_copies<Tile::kStages - 2>();
    __syncthreads();  // all have arrived, and nobody reads the stage that is filled next
    load(stage == 0 ? Tile::kStages - 1 : stage - 1);
    read(stage, 0, x, weight);
  }

  // The first numbers are split already. Then so are those of the next job, if there may be one.
  template <class Load>
  __device__ void add_products(int steps, Load const& load, int& stage, Operand& x, Operand& weight,
                               WarpSums& sums) const {
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

  __device__ void store_sums(Job const& job, WarpSums const& sums) const {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      int const n = job.n0 + 4 * piece_at(column);
      if (n >= params.product.n) continue;
      Store const store(params, job.batch, n);
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        int const m = job.m0 + first_row() + row;
        if (m < params.product.m) store(m, unscale(piece_of(sums, row, column)));
      }
    }
  }

  // Adds up the sums of all warps and blocks that have a share of K.
  __device__ void exchange_sums(Job const& job, WarpSums const& sums) const {
    wait_for_copies<0>();
    __syncthreads();  // nobody reads the stages any more
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      *sums_at(warp_k, first_row() + i / 2, piece_at(i % 2)) = piece_of(sums, i / 2, i % 2);
    }
    bool const has_slices = params.jobs.slices > 1;
    if (has_slices) {
      sync_cluster();
    } else {
      __syncthreads();
    }
    if (params.jobs.parts == 1) {
      store_rows(job, [&](int row, int piece) { return add_up(row, piece); });
    } else {
      int const piece = int(threadIdx.x) % kPieces;
#pragma unroll 1
      for (int row = first_own_row(); row < Tile::kM; row += row_step()) {
        *partial_sums_at(job, job.number / of_part(), row, piece) = add_up(row, piece);
      }
      if (is_last_part(job)) {
        store_rows(job, [&](int row, int piece) { return add_up_parts(job, row, piece); });
      }
    }
    if (has_slices) sync_cluster();  // others may still read this block's sums
  }

  // Four neighbouring sums of one of the warps that have a share of K each.
  __device__ float4* sums_at(int warp, int row, int piece) const {
    int const order = (row >> 4 & 1) << 2;  // so that no bank is met twice
    return reinterpret_cast<float4*>(shared) + (warp * Tile::kM + row) * kPieces + (piece ^ order);
  }

  __device__ static void sync_cluster() {
#if __CUDA_ARCH__ >= 900
    cooperative_groups::this_cluster().sync();
#endif
  }
  __device__ float4 read_sums(float4* at, int rank) const {
#if __CUDA_ARCH__ >= 900
    if (params.jobs.slices > 1)
      return *cooperative_groups::this_cluster().map_shared_rank(at, rank);
#endif
    return *at;
  }

  // The rows of a tile are shared out among the slices' blocks.
  __device__ int first_own_row() const { return int(threadIdx.x) / kPieces + slice * kRowStep; }
  __device__ int row_step() const { return params.jobs.slices * kRowStep; }

  // The sums of several rows are read before the first is stored: the compiler does not know that
  // these are different memories.
  template <class AddUp>
  __device__ void store_rows(Job const& job, AddUp const& add_up) const {
    int const piece = int(threadIdx.x) % kPieces, n = job.n0 + piece * 4;
    if (n >= params.product.n) return;
    Store const store(params, job.batch, n);
    int const step = row_step(), rows = min(Tile::kM, int(params.product.m) - job.m0);
    constexpr int kBatch = Tile::kM / kRowStep < 4 ? Tile::kM / kRowStep : 4;
#pragma unroll 1
    for (int first = first_own_row(); first < rows; first += kBatch * step) {
      float4 values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * step < rows) values[i] = unscale(add_up(first + i * step, piece));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * step < rows) store(job.m0 + first + i * step, values[i]);
      }
    }
  }

  // In the order of the shares.
  __device__ float4 add_up(int row, int piece) const {
    float4 sum = add_up_warps(row, piece, 0);
#pragma unroll 1
    for (int rank = 1; rank < params.jobs.slices; ++rank) add(sum, add_up_warps(row, piece, rank));
    return sum;
  }
  __device__ float4 add_up_warps(int row, int piece, int rank) const {
    float4 sum = read_sums(sums_at(0, row, piece), rank);
#pragma unroll
    for (int warp = 1; warp < Tile::kWarpsK; ++warp) {
      add(sum, read_sums(sums_at(warp, row, piece), rank));
    }
    return sum;
  }
  __device__ float4 add_up_parts(Job const& job, int row, int piece) const {
    float4 sum = __ldcg(partial_sums_at(job, 0, row, piece));
#pragma unroll 4
    for (int part = 1; part < params.jobs.parts; ++part) {
      add(sum, __ldcg(partial_sums_at(job, part, row, piece)));
    }
    return sum;
  }

  __device__ static void add(float4& sum, float4 const& other) {
    sum.x += other.x;
    sum.y += other.y;
    sum.z += other.z;
    sum.w += other.w;
  }
  __device__ static float4 unscale(float4 const& sum) {
    return {sum.x * kUnscale, sum.y * kUnscale, sum.z * kUnscale, sum.w * kUnscale};
  }

  // The jobs of a part follow each other.
  __device__ int of_part() const { return params.jobs.tiles * params.jobs.batch; }
  __device__ float4* partial_sums_at(Job const& job, int part, int row, int piece) const {
    int64_t const tile = int64_t(part) * of_part() + job.number % of_part();
    return reinterpret_cast<float4*>(params.partial_sums) + (tile * Tile::kM + row) * kPieces +
           piece;
  }

  // Whether the other parts of this block's rows are there: then it adds them up.
  __device__ bool is_last_part(Job const& job) const {
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned* const arrived =
          params.arrived + job.number % of_part() * params.jobs.slices + slice;
      is_last = atomicAdd(arrived, 1u) + 1 == unsigned(params.jobs.parts);
    }
    __syncthreads();
    __threadfence();
    return is_last;
  }
};

}  // namespace tf32x3

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_tf32x3(__grid_constant__ Tf32x3Params<Epilogue> const params) {
  extern __shared__ __align__(128) float shared[];
  tf32x3::Kernel<Tile, kMajorX, kMajorWeight, kWhole, kInTf32, Epilogue>(params, shared).run();
}

}  // namespace cutlass_fused
