// What an epilogue needs of its tile's columns of y, read while the tile is multiplied, by the warp
// that CUTLASS keeps for loads beside those of the operands. Behind the mainloop six vectors of
// run-time types took 0.4 us of every tile: to ask for them, to wait, to derive what depends on
// them.
//
// In cooperative kernels alone: in a pingpong kernel one tile's epilogue hides behind the mainloop
// of the other.
#pragma once

#include "cutlass/arch/barrier.h"
#include "cutlass/arch/grid_dependency_control.h"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"

namespace cutlass_fused {

// The values of one tile, at the beginning of a block's shared memory, and who has them: the
// reading warp, until all its threads arrive at a named barrier, and the epilogue's threads, until
// each of their warps arrives at `empty`.
template <class Tree, int kColumnsOfTile>
struct ColumnsAhead {
  static constexpr int kColumns = kColumnsOfTile;
  using Operands = Columns<Tree>;
  using Empty = cutlass::arch::ClusterBarrier;

  struct Storage {
    alignas(16) typename Empty::ValueType empty;
    alignas(16) float values[Operands::kRows][kColumns];
  };
  static constexpr int kAlignment = 1024;  // of CUTLASS's memory, which lies behind
  static constexpr int kBytes = ceil_div(sizeof(Storage), kAlignment) * kAlignment;

  CUTLASS_DEVICE static Storage& storage() {
    extern __shared__ __align__(kAlignment) char shared_memory[];
    return *reinterpret_cast<Storage*>(shared_memory);
  }

  // All threads call it, in front of the barrier at which the kernel's other barriers are ready.
  CUTLASS_DEVICE static void init() {
    if (threadIdx.x != 0) return;
    Empty::init(&storage().empty, kEpilogueThreads / cutlass::NumThreadsPerWarp);
    cutlass::arch::fence_barrier_init();
  }

  // The reading warp calls it: reads the vectors from column `first` on, for the block's `tile`th
  // tile.
  CUTLASS_DEVICE static void fill(typename Operands::Arguments const& args, int tile, int first,
                                  int columns, int lane) {
    Storage& to = storage();
    if (tile > 0) Empty::wait(&to.empty, (tile - 1) % 2);
    constexpr int kAtOnce = 2;  // columns of a thread: the warp has 40 registers
    static_assert(kColumns % (kAtOnce * cutlass::NumThreadsPerWarp) == 0);  // for all lanes alike
    CUTLASS_PRAGMA_NO_UNROLL
    for (int i = kAtOnce * lane; i < kColumns; i += kAtOnce * cutlass::NumThreadsPerWarp) {
      int64_t const n[kAtOnce] = {min(first + i, columns - 1), min(first + i + 1, columns - 1)};
      Operands::load(args, n, &to.values[0][i], kColumns);
    }
    asm volatile("bar.arrive %0, %1;" ::"n"(kFull), "n"(kFullThreads) : "memory");
  }

  // All threads of an epilogue call it.
  CUTLASS_DEVICE static void wait() {
    asm volatile("bar.sync %0, %1;" ::"n"(kFull), "n"(kFullThreads) : "memory");
  }
  CUTLASS_DEVICE static void release() {
    __syncwarp();
    if (threadIdx.x % cutlass::NumThreadsPerWarp == 0) Empty::arrive(&storage().empty);
  }

 private:
  static constexpr int kEpilogueThreads = 2 * cutlass::NumThreadsPerWarpGroup;
  static constexpr int kFullThreads = kEpilogueThreads + cutlass::NumThreadsPerWarp;
  static constexpr int kFull = int(cutlass::arch::ReservedNamedBarriers::FirstUserBarrier);
};

// CUTLASS asks of a mainloop's policy whether there is anything for that warp to do.
template <class Policy>
struct PolicyWithAuxiliaryLoad : Policy {};

// kMode: of the tile, along which the columns of y lie.
template <class Base, class Ahead, int kMode>
struct MainloopWithColumns : Base {
  using DispatchPolicy = PolicyWithAuxiliaryLoad<typename Base::DispatchPolicy>;

  struct Params : Base::Params {
    typename Ahead::Operands::Arguments operands;
    int columns;  // of y
  };

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(ProblemShape const& problem_shape,
                                                  typename Base::Arguments const& args,
                                                  void* workspace) {
    return {Base::to_underlying_arguments(problem_shape, args, workspace), {}, 0};
  }

  template <class Pipeline, class State, class Inputs, class Coordinates, class Iterator,
            class Storage>
  CUTLASS_DEVICE void load_auxiliary(Params const& params, Pipeline const&, State const&,
                                     Inputs const&, Coordinates const& coordinates, Iterator const&,
                                     int, int lane, uint32_t, Storage&) {
    // The vectors may be what the kernel before this one writes.
    cutlass::arch::wait_on_dependent_grids();
    int const first = cute::get<kMode>(coordinates) * Ahead::kColumns;
    Ahead::fill(params.operands, tile++, first, params.columns, lane);
  }

 private:
  int tile = 0;  // of this block's
};

namespace sm90 {

// The kIndexth of a tile's vectors.
template <class Ahead, class Tile, int kMode, int kIndex>
struct ColumnAhead : Leaf<Empty> {
  using Leaf<Empty>::Leaf;
  using Values = TileVector<Tile, kMode>;

  template <class SharedTensor>
  struct Callbacks : Values::template Callbacks<SharedTensor> {
    using Base = typename Values::template Callbacks<SharedTensor>;
    using Base::Base;

    // Along N nothing changes where the vector lies along M, all of which is one step.
    CUTLASS_DEVICE void begin_loop(int epi_m, int epi_n) {
      constexpr int kStepsM = cute::size<3>(SharedTensor{});
      if (kMode == 0 && kStepsM == 1 && epi_n != 0) return;
      Base::begin_loop(epi_m, epi_n);
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    auto const values =
        Values::template partition<kReferenceSource>(Ahead::storage().values[kIndex], args);
    return Callbacks<std::remove_const_t<decltype(values)>>(values);
  }
};

// Fn, between the arrival of its operands and their release.
template <class Ahead, class Fn>
struct ComputeAhead : Compute<Fn> {
  using Compute<Fn>::Compute;

  struct Callbacks : Compute<Fn>::Callbacks {
    CUTLASS_DEVICE void begin() { Ahead::wait(); }
    CUTLASS_DEVICE void end() { Ahead::release(); }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const&) {
    return Callbacks();
  }
};

}  // namespace sm90

// How a kernel's epilogue comes by its vectors. By itself, behind the mainloop:
template <class Tile, bool kSwapped, class Tree>
struct VectorsBehind {
  using TreeOf = sm90::TreeOf<Tile, kSwapped, Tree>;
  template <class Mainloop>
  using MainloopOf = Mainloop;
  static constexpr int kBytes = 0;

  CUTLASS_DEVICE static void init() {}
};

// ... or ahead, where all of them lie along the columns of y.
template <class Tree>
constexpr bool has_columns_alone = false;
template <class Fn, class... Vectors>
constexpr bool has_columns_alone<Tree<Compute<Fn>, Acc, Row<Vectors>...>> = sizeof...(Vectors) > 0;

template <class Tile, bool kSwapped, class Tree>
struct VectorsAhead;
template <class Tile, bool kSwapped, class Fn, class... Operands>
struct VectorsAhead<Tile, kSwapped, Tree<Compute<Fn>, Acc, Operands...>> {
  static constexpr int kMode = kSwapped ? 0 : 1;
  using Ahead = ColumnsAhead<Tree<Compute<Fn>, Acc, Operands...>, cute::size<kMode>(Tile{})>;

  struct TreeOf {
    template <size_t... kIndex>
    static auto make(std::index_sequence<kIndex...>)
        -> sm90::fusion::Sm90EVT<sm90::ComputeAhead<Ahead, Fn>, sm90::Acc,
                                 sm90::ColumnAhead<Ahead, Tile, kMode, int(kIndex)>...>;
    using type = decltype(make(std::index_sequence_for<Operands...>{}));

    // The mainloop has them.
    template <class Tuple>
    static typename type::Arguments arguments(Tuple const&) {
      return {};
    }
  };
  template <class Mainloop>
  using MainloopOf = MainloopWithColumns<Mainloop, Ahead, kMode>;
  static constexpr int kBytes = Ahead::kBytes;

  CUTLASS_DEVICE static void init() { Ahead::init(); }
};

}  // namespace cutlass_fused

template <class Policy>
struct cutlass::gemm::kernel::detail::HasAuxiliaryLoad<
    cutlass_fused::PolicyWithAuxiliaryLoad<Policy>> : cute::true_type {};
