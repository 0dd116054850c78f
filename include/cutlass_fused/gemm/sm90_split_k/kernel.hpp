// The kernel of a tile that slices K: one warp loads with TMA, warpgroups multiply, all blocks of a
// cluster add up their slices, and each applies the epilogue to a share of the tile's columns.
//
// Its code is kept short: where a product takes a few microseconds, the time to fetch instructions
// from memory is seen.
#pragma once

#include "cutlass_fused/gemm/fp16x3/multiply.hpp"
#include "cutlass_fused/gemm/sm90_split_k/gemm.hpp"
#include "cutlass_fused/common/launch.cuh"

namespace cutlass_fused {

// Four numbers at an address in the shared memory of a block of this cluster.
CUTLASS_DEVICE float4 load_from_block(float const* address, int block) {
  uint32_t const own = cute::cast_smem_ptr_to_uint(address);
  uint32_t remote;
  float4 value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(own), "r"(block));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(remote));
  return value;
}

template <class Gemm>
struct SplitKernel {
  using Tile = typename Gemm::Tile;
  using Mainloop = typename Gemm::Mainloop;
  using Params = typename Gemm::Params;
  using SharedMemory = typename Gemm::SharedMemory;
  using FullBarrier = cutlass::arch::ClusterTransactionBarrier;
  using EmptyBarrier = cutlass::arch::ClusterBarrier;

  Params const& params;
  SharedMemory& shared;
  int const warp = cutlass::canonical_warp_idx_sync();
  int const lane = threadIdx.x % 32;
  int const slices = int(cute::cluster_shape().x);  // blocks of the cluster
  int const slice = int(cute::block_rank_in_cluster());
  int const tile_m = int(blockIdx.x) / slices;  // features
  int const tile_n = int(blockIdx.y);           // rows of x

  // A stage of the ring, and the parity that its barriers have there.
  struct Position {
    int stage = 0;
    uint32_t phase = 0;

    CUTLASS_DEVICE void advance() {
      if (++stage == Gemm::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };

  CUTLASS_DEVICE void run() {
    if (warp == Gemm::kConsumers / 32) {
      produce();
    } else {
      consume();
    }
    // Others may still read this block's sums. Warps arrive as a whole.
    __syncwarp();
    if (slices > 1) sync_cluster();
  }

 private:
  CUTLASS_DEVICE static void sync_cluster() {
    cute::cluster_arrive();
    cute::cluster_wait();
  }

  // What the producer has written is there for the consumers: it arrives, they wait. Barriers of
  // the whole block they would have to reach in one place of the code, which made kernels of a few
  // microseconds up to 15% slower on an H200.
  enum Handover { kStagesBegin = 2, kOperandsAreThere = 3 };
  CUTLASS_DEVICE static void hand_over(Handover what) {
    cutlass::arch::NamedBarrier::arrive(Gemm::kThreads, what);
  }
  CUTLASS_DEVICE static void wait_for(Handover what) {
    cutlass::arch::NamedBarrier::sync(Gemm::kThreads, what);
  }

  // The slice's share of the stages of K: from first to last.
  CUTLASS_DEVICE int count_stages() const {
    return cute::ceil_div(params.k, int(cute::size<2>(typename Gemm::TileShape{})));
  }
  CUTLASS_DEVICE int first_stage() const { return count_stages() * slice / slices; }
  CUTLASS_DEVICE int last_stage() const { return count_stages() * (slice + 1) / slices; }

  CUTLASS_DEVICE auto staged_a() const {
    return cute::make_tensor(cute::make_smem_ptr(shared.stages.smem_A.data()),
                             typename Gemm::SharedWeight{});
  }
  CUTLASS_DEVICE auto staged_b() const {
    return cute::make_tensor(cute::make_smem_ptr(shared.stages.smem_B.data()),
                             typename Mainloop::SmemLayoutB{});
  }

  CUTLASS_DEVICE void produce() {
    using namespace cute;
    bool const elected = elect_one_sync();
    auto const& tma_a = params.load_weight;
    auto const& tma_b = params.load_x;
    auto const x = local_tile(tma_b.get_tma_tensor(make_shape(params.m, params.k, 1)),
                              typename Gemm::TileShape{}, make_coord(_, tile_n, _),
                              Step<Underscore, _1, _1>{});
    auto const from_b = tma_b.get_slice(0).partition_S(x(_, _, _, 0));
    auto to_b = tma_b.get_slice(0).partition_D(staged_b());
    // A weight that is read once makes way in L2 for what is read again, and what earlier kernels
    // wrote need not be written back for it: where that fills an H200's L2, M=16 N=8192 K=8192
    // takes 39.5 us, and 43.3 without. In an L2 of nothing but reads both take 35.
    auto const hint = gridDim.y == 1 ? TMA::CacheHintSm90::EVICT_FIRST  //
                                     : TMA::CacheHintSm90::EVICT_NORMAL;

    auto const load_weight = make_weight_copy(hint);
    int k = first_stage();
    int const last = last_stage(), early = min(last, k + Gemm::kStages);
    Position at{0, 1};
    auto const load_until = [&](int end) {
      CUTLASS_PRAGMA_NO_UNROLL
      for (; k < end; ++k) {
        EmptyBarrier::wait(&shared.empty[at.stage], at.phase);
        uint64_t& full = shared.full[at.stage];
        FullBarrier::arrive_and_expect_tx(&full, Gemm::kLoadedBytes);
        load_weight(full, k, at.stage);
        copy(tma_b.with(full, 0), from_b(_, _, _, k), to_b(_, _, _, at.stage));
        at.advance();
      }
    };
    if (elected) {
      prefetch_tma_descriptor(tma_a.get_tma_descriptor());
      prefetch_tma_descriptor(tma_b.get_tma_descriptor());
      CUTLASS_PRAGMA_NO_UNROLL
      for (int i = 0; i < Gemm::kStages; ++i) {
        FullBarrier::init(&shared.full[i], 1);
        EmptyBarrier::init(&shared.empty[i], Gemm::kWarpgroups);
      }
      cutlass::arch::fence_barrier_init();
      if (tile_n == 0) prefetch_weight(k, early);
    }
    wait_for_previous_kernel();
    if (elected) load_until(early);  // while the consumers still wait for the barriers
    __syncwarp();
    hand_over(kStagesBegin);
    load_operands();
    if (elected) load_until(last);
    __syncwarp();
    allow_next_kernel();
    if (slices > 1) {
      sync_cluster();
    } else {
      hand_over(kOperandsAreThere);
    }
  }

  // Some stages of the weight, while the kernel before this one still runs: to L2 and no further,
  // since that kernel may be what writes it, as a split does. L2 has what is written last.
  CUTLASS_DEVICE void prefetch_weight(int first, int last) const {
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k = first; k < last; ++k) {
      Gemm::Weight::prefetch(params.load_weight, params.n, params.k, tile_m, k);
    }
  }

  // What copies the tile's rows of the weight, for a stage of K, to a stage of the ring.
  CUTLASS_DEVICE auto make_weight_copy(cute::TMA::CacheHintSm90 hint) const {
    using namespace cute;
    using Weight = typename Gemm::Weight;
    auto const& load = params.load_weight;
    auto* const shared_weight = shared.stages.smem_A.data();
    if constexpr (Gemm::kAlongN) {
      constexpr int kStage = cosize_v<typename Weight::SharedLayout> / Gemm::kStages;
      return [=](uint64_t& full, int k, int stage) {
        Weight::copy(params.load_weight, &full, uint64_t(hint), shared_weight + stage * kStage,
                     tile_m, k);
      };
    } else {
      auto const weight = local_tile(load.get_tma_tensor(make_shape(params.n, params.k)),
                                     typename Weight::LoadedShape{}, make_coord(tile_m, _));
      auto const from = load.get_slice(0).partition_S(weight);
      auto const to = load.get_slice(0).partition_D(
          make_tensor(make_smem_ptr(shared_weight), typename Weight::LoadedRows{}));
      return [=](uint64_t& full, int k, int stage) {
        auto at = to(_, _, _, stage);
        copy(params.load_weight.with(full, 0, hint), from(_, _, _, k), at);
      };
    }
  }

  CUTLASS_DEVICE void load_operands() const {
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = lane; i < Tile::kM; i += 32) {
      int const feature = tile_m * Tile::kM + i;
      if (feature < params.n) {
        Gemm::Operands::load(params.operands, feature, shared.operands + i, Tile::kM);
      }
    }
  }

  CUTLASS_DEVICE void consume() {
    using namespace cute;
    wait_for(kStagesBegin);
    typename Mainloop::TiledMma mma;
    auto const thread_mma = mma.get_slice(warp / 4 * 128);
    auto const a = thread_mma.make_fragment_A(thread_mma.partition_A(staged_a()));
    auto const b = thread_mma.make_fragment_B(thread_mma.partition_B(staged_b()));
    auto sums = partition_fragment_C(mma, take<0, 2>(typename Gemm::TileShape{}));
    if constexpr (Gemm::kEngine == Engine::kFp16x3) {
      Position at, oldest;
      multiply_split(
          mma, a, b, sums, last_stage() - first_stage(), [&] { return wait_for_stage(at); },
          [&] { release(oldest); });
    } else {
      multiply(mma, a, b, sums);
    }
    stage_sums(sums);
    // Behind it the sums of all slices are there, and so are the epilogue's operands.
    if (slices > 1) {
      sync_cluster();
    } else {
      wait_for(kOperandsAreThere);
    }
    finish();
  }

  // Both give the stage and move on.
  CUTLASS_DEVICE int wait_for_stage(Position& at) const {
    int const stage = at.stage;
    FullBarrier::wait(&shared.full[stage], at.phase);
    at.advance();
    return stage;
  }
  CUTLASS_DEVICE void release(Position& at) const {
    if (threadIdx.x % 128 == 0) EmptyBarrier::arrive(&shared.empty[at.stage]);
    at.advance();
  }

  template <class Mma, class A, class B, class Accumulators>
  CUTLASS_DEVICE void multiply(Mma& mma, A const& a, B const& b, Accumulators& acc) const {
    using namespace cute;
    auto promoted = make_tensor_like(acc);
    clear(acc);
    if constexpr (Gemm::kCanPromote) clear(promoted);

    mma.accumulate_ = GMMA::ScaleOut::Zero;
    Position at;
    int pending = -1;    // the stage whose instructions may still run
    int unpromoted = 0;  // stages in acc
    int const last = last_stage();
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k = first_stage(); k < last; ++k) {
      FullBarrier::wait(&shared.full[at.stage], at.phase);
      warpgroup_fence_operand(acc);
      warpgroup_arrive();
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < size<2>(a); ++i) {
        cute::gemm(mma, a(_, _, i, at.stage), b(_, _, i, at.stage), acc);
        mma.accumulate_ = GMMA::ScaleOut::One;
      }
      warpgroup_commit_batch();
      if (Gemm::kCanPromote && ++unpromoted == params.promotion_stages) {
        warpgroup_wait<0>();
        warpgroup_fence_operand(acc);
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < size(acc); ++i) promoted(i) += acc(i);
        mma.accumulate_ = GMMA::ScaleOut::Zero;
        unpromoted = 0;
      } else {
        warpgroup_wait<1>();
        warpgroup_fence_operand(acc);
      }
      if (pending >= 0 && threadIdx.x % 128 == 0) EmptyBarrier::arrive(&shared.empty[pending]);
      pending = at.stage;
      at.advance();
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(acc);
    if constexpr (Gemm::kCanPromote) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < size(acc); ++i) acc(i) = (unpromoted > 0 ? acc(i) : 0.0f) + promoted(i);
    }
  }

  // Into the memory of the stages, all of which are consumed.
  template <class Accumulators>
  CUTLASS_DEVICE void stage_sums(Accumulators const& acc) const {
    constexpr int kConsumerBarrier = 1;
    if constexpr (Gemm::kWarpgroups > 1) {
      cutlass::arch::NamedBarrier::sync(Gemm::kConsumers, kConsumerBarrier);
    }
    // A thread holds pairs of columns, at two rows for each block of eight columns.
    int const row = warp * 16 + lane / 4;
    if (Tile::kM < Gemm::kComputedRows && row >= Tile::kM) return;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < cute::size(acc); ++i) {
      int const column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      shared.sums[column * Gemm::kColumn + row + i / 2 % 2 * 8] = acc(i);
    }
  }

  // Adds up a share of the columns, over all slices in their order, and writes y.
  CUTLASS_DEVICE void finish() const {
    using Operands = typename Gemm::Operands;
    constexpr int kVector = 8;  // features of a thread
    constexpr int kChunks = Tile::kM / kVector;
    int const feature = threadIdx.x % kChunks * kVector;  // in the tile
    int const first = Tile::kN * slice / slices;
    int const last = min(Tile::kN * (slice + 1) / slices, params.m - tile_n * Tile::kN);

    alignas(16) float operands[Operands::kRows][kVector];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Operands::kRows * kVector; i += 4) {
      int const at = i / kVector * Tile::kM + feature + i % kVector;
      *reinterpret_cast<float4*>(&operands[0][i]) =
          *reinterpret_cast<float4 const*>(&shared.operands[at]);
    }
    // A warp stays together: it may write rows that its lanes have computed in pieces.
    CUTLASS_PRAGMA_NO_UNROLL
    for (int begin = first + warp * (32 / kChunks); begin < last;
         begin += Gemm::kConsumers / kChunks) {
      int const column = min(begin + lane / kChunks, last - 1);  // the last one several times
      float const* const sums = &shared.sums[column * Gemm::kColumn + feature];
      int const m = tile_n * Tile::kN + column, n = tile_m * Tile::kM + feature;
      typename Operands::Elements elements[kVector];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVector; ++i) {
        elements[i] = Operands::fetch(params.operands, m, min(n + i, params.n - 1));
      }
      float v[kVector] = {};
      CUTLASS_PRAGMA_NO_UNROLL
      for (int block = 0; block < slices; ++block) {
        float4 const low = load_from_block(sums, block), high = load_from_block(sums + 4, block);
        float const part[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) v[i] += part[i];
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVector; ++i) {
        v[i] =
            Operands::apply(params.operands, &operands[0][i], kVector, v[i], m, n + i, elements[i]);
      }
      bool const is_there = column == begin + lane / kChunks;
      if (params.y_type == DataType::kFloat32) {
        write<float>(v, column, feature, is_there, begin, last);
      } else {
        write<typename Gemm::Element>(v, column, feature, is_there, begin, last);
      }
    }
  }

  // Writes `v`, if it `is_there`: y at the tile's `column`, which is a row of y, from its `feature`
  // on. The warp holds the columns from `begin` on, as far as before `last`. Unaligned rows it
  // writes one after the other, with neighbouring elements in neighbouring lanes. If each lane
  // wrote its own elements one by one, each store would touch all sectors of the rows. On their way
  // the results lie where their sums lay, which no other warp reads.
  template <class T, int kVector>
  CUTLASS_DEVICE void write(float const (&v)[kVector], int column, int feature, bool is_there,
                            int begin, int last) const {
    cutlass::AlignedArray<T, kVector, 16> result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kVector; ++i) result[i] = T(v[i]);
    constexpr int kWords = kVector * sizeof(T) / sizeof(uint4);
    auto const put = [&](T* to) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kWords; ++i) {
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<uint4 const*>(&result)[i];
      }
    };
    T* const y = static_cast<T*>(params.y) + (tile_n * Tile::kN) * params.ldy + tile_m * Tile::kM;
    int const end = params.n - tile_m * Tile::kM;  // of the tile's features
    if (params.y_aligned && params.n % kVector == 0) {
      if (is_there && feature < end) put(y + column * params.ldy + feature);
      return;
    }
    auto const staged = [&](int column) {
      return reinterpret_cast<T*>(&shared.sums[column * Gemm::kColumn]);
    };
    __syncwarp();  // all have read their sums
    if (is_there) put(staged(column) + feature);
    __syncwarp();
    constexpr int kColumns = 32 * kVector / Tile::kM;
    constexpr int kUnrolled = sizeof(T) == 2 ? kColumns : 1;  // fp32 is rare here, and code long
    T* to = y + begin * params.ldy;
#pragma unroll kUnrolled
    for (int i = 0; i < kColumns; ++i, to += params.ldy) {
      T const* const row = staged(begin + i);
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < Tile::kM; j += 32) {
        if (begin + i < last && lane + j < end) to[lane + j] = row[lane + j];
      }
    }
  }
};

}  // namespace cutlass_fused
