// A product of fp32 matrices in one launch, from the matrices as they lie: tf32x3, split in
// registers. It serves where a pass that splits rows beforehand would cost more than it saves.
#pragma once

#include <cooperative_groups.h>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/tf32x3/mainloop.cuh"
#include "cutlass_fused/gemm/tf32x3/store.cuh"

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

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class Epilogue,
          class X = float>
struct Kernel {
  using Mainloop = tf32x3::Mainloop<Tile, kMajorX, kMajorWeight, kWhole, kInTf32, X>;
  using Store = tf32x3::Store<kMajorX, kMajorWeight, Epilogue, X>;
  using Operands = typename Store::Operands;
  static constexpr int kPieces = Mainloop::kPieces;
  static constexpr int kRowStep = Tile::kThreads / kPieces;
  static_assert(Tile::kThreads % kPieces == 0);

  Tf32x3Params<Epilogue> const& params;
  Mainloop mainloop;
  int slice;

  __device__ Kernel(Tf32x3Params<Epilogue> const& params, float* shared)
      : params(params), mainloop(shared), slice(int(blockIdx.x) % params.jobs.slices) {}

  __device__ void run() const {
    Tf32x3Jobs const& jobs = params.jobs;
    Job job = locate(int(blockIdx.x) / jobs.slices);
    typename Mainloop::Feeder feeder(params.product, jobs, job);
    int const step = int(gridDim.x) / jobs.slices;
    wait_for_previous_kernel();
    allow_next_kernel();
    auto const load = [&](int stage) {
      feeder.load(mainloop.shared + stage * Mainloop::kStageFloats, step, params.count);
    };
    int stage = 0;
    typename Mainloop::OperandX x;
    typename Mainloop::OperandWeight weight;
    mainloop.begin(load, stage, x, weight);
#pragma unroll 1
    for (;;) {
      WarpSums sums = {};
      mainloop.add_products(job.template steps<Tile>(), load, stage, x, weight, sums);
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

  __device__ void store_sums(Job const& job, WarpSums const& sums) const {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      int const n = job.n0 + 4 * mainloop.piece_at(column);
      if (n >= params.product.n) continue;
      Store const store(params, job.batch, n);
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        int const m = job.m0 + mainloop.first_row() + row;
        if (m < params.product.m) store(m, unscale(Mainloop::piece_of(sums, row, column)));
      }
    }
  }

  // Adds up the sums of all warps and blocks that have a share of K.
  __device__ void exchange_sums(Job const& job, WarpSums const& sums) const {
    mainloop.share_sums(sums);
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
    float4 sum = read_sums(mainloop.sums_at(0, row, piece), rank);
#pragma unroll
    for (int warp = 1; warp < Tile::kWarpsK; ++warp) {
      add(sum, read_sums(mainloop.sums_at(warp, row, piece), rank));
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
