// tf32x3 by WGMMA, for GPUs of compute capability 9.0: a product of fp32 matrices in one launch,
// from the matrices as they lie. Two warpgroups load, and split the weight; two split x, and
// multiply.
#pragma once

#include "cutlass/arch/barrier.h"
#include "cutlass/arch/reg_reconfig.h"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/tf32x3/exchange.cuh"
#include "cutlass_fused/gemm/tf32x3_sm90/load.cuh"
#include "cutlass_fused/gemm/tf32x3_sm90/multiply.cuh"

namespace cutlass_fused {
namespace tf32x3_sm90 {

using tf32x3::Job;
using Barrier = cutlass::arch::ClusterBarrier;

// The stages are a ring: which comes next, and how often the ring was gone round.
template <int kStages>
struct Ring {
  int stage = 0;
  unsigned phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// Sums in shared memory, in rows of kColumns: where a warp writes four of its rows they fill all
// banks.
template <int kColumns>
struct SumsInRows {
  __device__ static int index(int row, int column) {
    return row * kColumns + (column ^ row % 4 * 8);
  }
  __device__ static float4* sums_at(float* shared, int, int row, int piece) {
    return reinterpret_cast<float4*>(shared + index(row, piece * 4));
  }
};

template <class Tile, Major kMajorX, Major kMajorWeight, class Epilogue>
struct Kernel {
  using Stage = StageOf<Tile>;
  using Store = tf32x3::Store<kMajorX, kMajorWeight, Epilogue>;
  using Exchange = tf32x3::Exchange<Tile, SumsInRows<Tile::kN>, Store, Epilogue>;
  static constexpr int kColumns = Tile::kN / Tile::kWarpgroupsN;  // of a warpgroup
  using Sums = WarpgroupSums<kColumns>;
  static constexpr int kMultipliers = Tile::kWarpgroupsM * Tile::kWarpgroupsN;
  static constexpr int kSplitWarps = Tile::kSplitters * kWarpgroup / 32;
  static_assert(kMultipliers == 2 && Tile::kM == 64 * Tile::kWarpgroupsM);
  static_assert(Tile::kThreads == kWarpgroup * (kMultipliers + Tile::kSplitters));
  // Registers of a thread. A multiplying thread needs 160 for its sums, those of the stage, and its
  // numbers of x.
  static constexpr int kSplitterRegisters = 64, kMultiplierRegisters = 192;
  static_assert(Tile::kSplitters * kSplitterRegisters + kMultipliers * kMultiplierRegisters == 512);

  Tf32x3Params<Epilogue> const& params;
  char* shared;
  uint64_t* full;   // of each stage, when it is written
  uint64_t* empty;  // of each stage, when it was multiplied

  __device__ void run() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Tile::kStages; ++i) {
        Barrier::init(&full[i], kSplitWarps + 32 * kSplitWarps);
        Barrier::init(&empty[i], kMultipliers * kWarpgroup / 32);
      }
      cutlass::arch::fence_barrier_init();
    }
    __syncthreads();
    wait_for_previous_kernel();
    allow_next_kernel();
    int const warpgroup = __shfl_sync(0xffffffff, int(threadIdx.x) / kWarpgroup, 0);
    if (warpgroup >= kMultipliers) {
      cutlass::arch::warpgroup_reg_dealloc<kSplitterRegisters>();
      split();
    } else {
      cutlass::arch::warpgroup_reg_alloc<kMultiplierRegisters>();
      multiply(warpgroup);
    }
  }

 private:
  __device__ int first_job() const { return int(blockIdx.x) / params.jobs.slices; }
  __device__ int next_job(int number) const { return number + int(gridDim.x) / params.jobs.slices; }
  __device__ Job locate(int number) const {
    return Job::locate(params.jobs, int(params.product.k), number, Tile{});
  }
  __device__ static void arrive(uint64_t* barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Barrier::arrive(barrier);
  }

  // When the thread's copies are there.
  __device__ static void arrive_with_copies(uint64_t* barrier) {
    unsigned const at = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
  }

  // The stages of the block's jobs, as if they were those of one: x to shared memory as it lies,
  // the weight through registers.
  __device__ void split() const {
    FloatProduct const& product = params.product;
    int const warp = __shfl_sync(0xffffffff, int(threadIdx.x) / 32, 0) - kMultipliers * 4;
    Source<kMajorX, Tile::kM, kSplitWarps> x(product.x, warp);
    Source<kMajorWeight, Tile::kN, kSplitWarps> weight(product.weight, warp);
    float4 loaded[4];
    int number = first_job(), k_left = 0;
    auto const begin = [&] {
      if (number >= params.count) return;
      Job const job = locate(number);
      x.begin(job.batch, job.m0, int(product.m), job.k_begin);
      weight.begin(job.batch, job.n0, int(product.n), job.k_begin);
      k_left = job.k_end - job.k_begin;
    };
    Ring<Tile::kStages> ring;
    // False: there is no further stage.
    auto const load = [&] {
      if (number >= params.count) return false;
      Barrier::wait(&empty[ring.stage], ring.phase ^ 1);
      x.copy(shared + ring.stage * Stage::kBytes + Stage::kX, k_left);
      arrive_with_copies(&full[ring.stage]);
      weight.load(loaded, k_left);
      k_left -= Tile::kK;
      if (k_left <= 0) {
        number = next_job(number);
        begin();
      }
      return true;
    };
    begin();
#pragma unroll 1
    while (load()) {
      char* const stage = shared + ring.stage * Stage::kBytes;
      weight.split(loaded, stage + Stage::kHigh, stage + Stage::kLow);
      arrive(&full[ring.stage]);
      ring.advance();
    }
  }

  // Warpgroups multiply in turns: while one does, the other adds up what it has, and splits.
  __device__ void multiply(int warpgroup) const {
    int const row = warpgroup % Tile::kWarpgroupsM * 64;
    int const column = warpgroup / Tile::kWarpgroupsM * kColumns;
    if (warpgroup == 1) give_turn(0);
    Ring<Tile::kStages> ring;
#pragma unroll 1
    for (int number = first_job(); number < params.count; number = next_job(number)) {
      Sums sums = {}, part;
#pragma unroll 1
      for (int step = locate(number).template steps<Tile>(); step > 0; --step) {
        Barrier::wait(&full[ring.stage], ring.phase);
        cutlass::arch::fence_view_async_shared();  // what was stored, for WGMMA
        char const* const stage = shared + ring.stage * Stage::kBytes;
        SplitFragment x;
        x.template read<kMajorX, Tile::kM>(stage + Stage::kX, row);
        char const* const weight = stage + column * SwizzledRows::kBytes;
        take_turn(own_warpgroup());
        multiply_stage(x, weight + Stage::kHigh, weight + Stage::kLow, part);
        cute::warpgroup_wait<1>();
        give_turn(1 - own_warpgroup());
        wait_for_products(part);
        arrive(&empty[ring.stage]);
        sums.add(part);
        ring.advance();
      }
      asm volatile("" : "+r"(number));  // where the job lies takes registers only from here on
      Job const job = locate(number);
      if (params.jobs.slices * params.jobs.parts > 1) {
        end_turns();
        share(sums, row, column);
        return Exchange(params, reinterpret_cast<float*>(shared)).run(job);
      }
      store(job, sums, row, column);
    }
    end_turns();
  }

  // Anew, so that it takes no register beside the products.
  __device__ static int own_warpgroup() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread / kWarpgroup;
  }
  // Barriers of both multiplying warpgroups, behind that of Exchange.
  __device__ static void take_turn(int warpgroup) {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + warpgroup), "n"(Tile::kSummers) : "memory");
  }
  __device__ static void give_turn(int warpgroup) {
    asm volatile("bar.arrive %0, %1;" ::"r"(2 + warpgroup), "n"(Tile::kSummers) : "memory");
  }

  // The last turn was given, and is to be taken.
  __device__ static void end_turns() {
    if (own_warpgroup() == 0) take_turn(0);
  }

  // For Exchange. All stages were multiplied, and none is written any more.
  __device__ void share(Sums const& sums, int row, int column) const {
    asm volatile("bar.sync 1, %0;" ::"n"(Tile::kSummers) : "memory");
    write<Tile::kN, 0, kColumns / 8>(sums, reinterpret_cast<float*>(shared),
                                     row + Sums::first_row(), column + Sums::first_column());
  }

  // Through shared memory of the warp's own, by 16 rows of 64 columns, so that it writes whole
  // lines. What is not finite comes last, when the sums need no registers any more.
  __device__ void store(Job const& job, Sums const& sums, int row, int column) const {
    constexpr int kPart = Tile::kStoredColumns, kPieces = kPart / 4, kRows = 32 / kPieces;
    static_assert(kColumns == kPart || kColumns == 2 * kPart);
    int thread;  // again, so that nothing that follows from it takes registers beside products
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    int const warp = thread / 32, lane = thread % 32;
    auto* const own = reinterpret_cast<float*>(shared + Tile::kStagesBytes) + warp * 16 * kPart;
    int const m = job.m0 + row + warp % 4 * 16 + lane / kPieces;
    int const n = job.n0 + column + lane % kPieces * 4;
    unsigned infinite = 0;
    auto const store_part = [&](auto part) {
      constexpr int kNumber = decltype(part)::value;
      __syncwarp();
      write<kPart, kNumber*(kPart / 8), kPart / 8>(sums, own, lane / 4, lane % 4 * 2);
      __syncwarp();
      if (n + kNumber * kPart >= params.product.n) return;
      Store const store(params, job.batch, n + kNumber * kPart);
      // What the epilogue reads for its outputs alone is asked for some rows ahead.
      constexpr int kAhead = Store::kFetches ? 4 : 1;
#pragma unroll 1
      for (int first = 0; first < 16 / kRows && m + first * kRows < params.product.m;
           first += kAhead) {
        typename Store::Elements elements[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          elements[i] = store.fetch(min(m + (first + i) * kRows, int(params.product.m) - 1));
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          int const row = first + i;
          if (kAhead > 1 && m + row * kRows >= params.product.m) break;
          float4 const sum =
              *SumsInRows<kPart>::sums_at(own, 0, lane / kPieces + row * kRows, lane % kPieces);
          float4 const four = tf32x3::unscale(sum);
          if (Store::are_finite(four)) {
            store.store_floats(m + row * kRows, four, elements[i]);
          } else {
            infinite |= 1u << (kNumber * (16 / kRows) + row);
          }
        }
      }
    };
    store_part(std::integral_constant<int, 0>());
    if constexpr (kColumns > kPart) store_part(std::integral_constant<int, 1>());
#pragma unroll 1
    for (; infinite != 0; infinite &= infinite - 1) {
      int const bit = __ffs(int(infinite)) - 1;
      float const nan = __int_as_float(0x7fffffff);
      Store const store(params, job.batch, n + bit / (16 / kRows) * kPart);
      int const row = m + bit % (16 / kRows) * kRows;
      store(row, {nan, nan, nan, nan}, store.fetch(row));
    }
  }

  // Some groups of columns. `row`, `column`: of the thread's first sum of the first one.
  template <int kStride, int kFirst, int kCount>
  __device__ static void write(Sums const& sums, float* to, int row, int column) {
    int const index = SumsInRows<kStride>::index(row, column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float const* const values = &sums.values[4 * (kFirst + i)];
      float* const at = to + (index ^ i * 8);
      *reinterpret_cast<float2*>(at) = {values[0], values[1]};
      *reinterpret_cast<float2*>(at + 8 * kStride) = {values[2], values[3]};
    }
  }
};

}  // namespace tf32x3_sm90

template <class Tile, Major kMajorX, Major kMajorWeight, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_tf32x3_sm90(__grid_constant__ Tf32x3Params<Epilogue> const params) {
  extern __shared__ __align__(1024) char stages[];
  using Kernel = tf32x3_sm90::Kernel<Tile, kMajorX, kMajorWeight, Epilogue>;
  auto* const full = reinterpret_cast<uint64_t*>(stages + Tile::kSharedBytes - Tile::kBarrierBytes);
  Kernel{params, stages, full, full + Tile::kStages}.run();
}

}  // namespace cutlass_fused
