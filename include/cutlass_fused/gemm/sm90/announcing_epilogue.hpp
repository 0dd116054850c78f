// The epilogue of Statistics as a collective that says of every tile when it is in memory, so that
// another kernel can go on with z while this one still runs: normalize_strips.cuh.
#pragma once

#include "cutlass_fused/gemm/sm90/kernel.hpp"
#include "cutlass_fused/gemm/sm90/registers_epilogue.hpp"
#include "cutlass_fused/norm/strips.hpp"

namespace cutlass_fused {

struct Announcements {
  unsigned* tiles;  // of every strip of z, counted up; null: nobody waits for them
};

// A tile is announced in front of the next one's epilogue: by then it has long been written, and
// nothing waits here.
template <class Built>
struct AnnouncingEpilogue : RegistersEpilogue<Built, Announcements> {
  using Base = RegistersEpilogue<Built, Announcements>;
  using Base::Base;

  template <class Load, class LoadState, class Store, class StoreState, class ProblemShape,
            class Tile, class Coordinates, class Accumulators, class TiledMma>
  CUTLASS_DEVICE auto store(Load load, LoadState load_state, Store store, StoreState store_state,
                            ProblemShape problem_shape, Tile tile, Coordinates coordinates,
                            Accumulators accumulators, TiledMma tiled_mma, int thread,
                            typename Base::Storage& storage, int subtile) {
    // What waits for tiles may be launched where this kernel leaves room: what this one depends on
    // is complete.
    if (this->args.tiles != nullptr) cutlass::arch::launch_dependent_grids();
    announce();
    auto const states =
        Built::store(load, load_state, store, store_state, problem_shape, tile, coordinates,
                     accumulators, tiled_mma, thread, storage, subtile);
    int const feature = cute::get<0>(coordinates) * cute::size<0>(tile);
    int const row = cute::get<1>(coordinates) * cute::size<1>(tile);
    bool const exists = feature < cute::get<0>(problem_shape) && row < cute::get<1>(problem_shape);
    strip = exists ? feature / kColumnsOfStrip : -1;
    first_warp = thread < cutlass::NumThreadsPerWarp;
    return states;
  }

  template <class... Args>
  CUTLASS_DEVICE auto store_tail(Args... args) {
    auto const states = Built::store_tail(args...);
    announce();
    return states;
  }

 private:
  int strip = -1;           // of the tile that was written last
  bool first_warp = false;  // which has TMA write

  // The barrier makes known to the first warp what others wrote: the tile's statistics.
  CUTLASS_DEVICE void announce() {
    if (this->args.tiles == nullptr || strip < 0) return;
    cutlass::arch::NamedBarrier::sync(kThreads, kBarrier);
    if (!first_warp) return;
    // Until z is written; CUTLASS waits until it is read from shared memory.
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % cutlass::NumThreadsPerWarp == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(this->args.tiles + strip)
                   : "memory");
    }
  }

  static constexpr int kThreads = 2 * cutlass::NumThreadsPerWarpGroup;  // of a cooperative kernel
  static constexpr auto kBarrier = cutlass::arch::ReservedNamedBarriers::EpilogueBarrier;
};

}  // namespace cutlass_fused
