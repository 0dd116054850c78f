// Sums of which several warps and blocks have a share of K each, added up and stored.
#pragma once

#include <cooperative_groups.h>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/tf32x3/jobs.cuh"
#include "cutlass_fused/gemm/tf32x3/multiply.cuh"
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
  float* partial_sums;       // of each part, if there are several
};

namespace tf32x3 {

// Whether a block stores complete sums from registers, and then goes on to its next job: the
// vectors of a batch norm would spill beside the numbers of that, which are on their way.
template <class Tile, class Epilogue>
constexpr bool stores_from_registers =
    is_persistent<Tile> && Columns<typename Epilogue::Tree>::kRows <= 2;

__device__ __forceinline__ float4 unscale(float4 const& sum) {
  return {sum.x * kUnscale, sum.y * kUnscale, sum.z * kUnscale, sum.w * kUnscale};
}

__device__ __forceinline__ void add(float4& sum, float4 const& other) {
  sum.x += other.x;
  sum.y += other.y;
  sum.z += other.z;
  sum.w += other.w;
}

// By the first Tile::kSummers threads of a block. Mainloop::sums_at(shared, warp, row, piece) finds
// four neighbouring sums of one of the Tile::kWarpsK warps that have the same outputs.
template <class Tile, class Mainloop, class Store, class Epilogue>
struct Exchange {
  static constexpr int kPieces = Tile::kN / 4;  // of a row of outputs
  static constexpr int kRowStep = Tile::kSummers / kPieces;
  static_assert(Tile::kSummers % kPieces == 0);

  Tf32x3Params<Epilogue> const& params;
  float* shared;
  int slice;

  __device__ Exchange(Tf32x3Params<Epilogue> const& params, float* shared)
      : params(params), shared(shared), slice(int(blockIdx.x) % params.jobs.slices) {}

  // The block's sums are in shared memory.
  __device__ void run(Job const& job) const {
    bool const has_slices = params.jobs.slices > 1;
    if (has_slices) {
      sync_cluster();
    } else {
      sync_summers();
    }
    if (params.jobs.parts == 1) {
      store_rows(job, [&](int row, int piece) { return add_up(row, piece); });
    } else {
      int const piece = int(threadIdx.x) % kPieces;
#pragma unroll 1
      for (int row = first_own_row(); row < Tile::kM; row += row_step()) {
        // Jobs are numbered part by part.
        auto* const sums = reinterpret_cast<float4*>(params.partial_sums);
        sums[(int64_t(job.number) * Tile::kM + row) * kPieces + piece] = add_up(row, piece);
      }
    }
    if (has_slices) sync_cluster();  // others may still read this block's sums
  }

 private:
  __device__ static void sync_summers() {
    if constexpr (Tile::kSummers == Tile::kThreads) {
      __syncthreads();
    } else {
      asm volatile("bar.sync 1, %0;" ::"n"(Tile::kSummers) : "memory");
    }
  }
  // Threads that have ended do not count.
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
      typename Store::Elements elements[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * step < rows) {
          elements[i] = store.fetch(job.m0 + first + i * step);
          values[i] = unscale(add_up(first + i * step, piece));
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * step < rows) store(job.m0 + first + i * step, values[i], elements[i]);
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
    float4 sum = read_sums(Mainloop::sums_at(shared, 0, row, piece), rank);
#pragma unroll
    for (int warp = 1; warp < Tile::kWarpsK; ++warp) {
      add(sum, read_sums(Mainloop::sums_at(shared, warp, row, piece), rank));
    }
    return sum;
  }
};

// What follows a product whose K is cut into parts: their sums, added up in their order, and
// stored. Each thread adds up a range of the parts, for four neighbouring sums.
template <class Tile>
struct PartsBlock {
  static constexpr int kThreads = 256, kMostRanges = 8;
  static constexpr int kPieces = Tile::kN / 4;

  __host__ __device__ static int ranges(Tf32x3Jobs const& jobs) {
    return jobs.parts < kMostRanges ? jobs.parts : kMostRanges;
  }
  __host__ __device__ static int64_t pieces(Tf32x3Jobs const& jobs) {
    return int64_t(jobs.tiles) * jobs.batch * Tile::kM * kPieces;
  }
};

template <class Tile, class Store, class Epilogue>
__device__ void add_parts(Tf32x3Params<Epilogue> const& params) {
  using Block = PartsBlock<Tile>;
  __shared__ float4 shared[Block::kThreads];
  Tf32x3Jobs const& jobs = params.jobs;
  int const ranges = Block::ranges(jobs), own_pieces = Block::kThreads / ranges;
  int const own = int(threadIdx.x) % own_pieces, of_range = jobs.parts / ranges;
  int64_t const all = Block::pieces(jobs), at = int64_t(blockIdx.x) * own_pieces + own;
  auto const* const first = reinterpret_cast<float4 const*>(params.partial_sums) +
                            int(threadIdx.x) / own_pieces * of_range * all + at;
  float4 sum = {};
  wait_for_previous_kernel();
  allow_next_kernel();
  if (at < all) {
#pragma unroll 8
    for (int i = 0; i < of_range; ++i) add(sum, __ldcg(first + i * all));
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (int(threadIdx.x) >= own_pieces || at >= all) return;
  for (int i = 1; i < ranges; ++i) add(sum, shared[i * own_pieces + own]);
  int const row = int(at / Block::kPieces % Tile::kM);
  int const number = int(at / (Tile::kM * Block::kPieces)), tile = number % jobs.tiles;
  int const m = tile % jobs.tiles_m * Tile::kM + row;
  int const n = tile / jobs.tiles_m * Tile::kN + int(at % Block::kPieces) * 4;
  if (m >= params.product.m || n >= params.product.n) return;
  Store const store(params, number / jobs.tiles, n);
  store(m, unscale(sum), store.fetch(m));
}

}  // namespace tf32x3

template <class Tile, Major kMajorX, Major kMajorWeight, class Epilogue, class X = float>
__global__ void __launch_bounds__(tf32x3::PartsBlock<Tile>::kThreads)
    add_parts_tf32x3(__grid_constant__ Tf32x3Params<Epilogue> const params) {
  tf32x3::add_parts<Tile, tf32x3::Store<kMajorX, kMajorWeight, Epilogue, X>>(params);
}

}  // namespace cutlass_fused
