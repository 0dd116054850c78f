// The root of an SM90 visitor tree that writes 16-bit rows of y of any alignment: through shared
// memory, so that the lanes of a warp write neighbouring elements of a row. TMA writes no such
// rows, and the lanes that hold a tile's accumulators lie across four of them.
#pragma once

#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"

namespace cutlass_fused::sm90 {

struct StoreRowsArgs {
  void* y;
  int64_t ldy;
};

// Of swapped operands: a row of y is a column of the problem, and its elements lie along the rows.
template <class Element>
struct StoreRows : Leaf<StoreRowsArgs> {
  using ElementAux = Element;  // what CUTLASS lays shared memory out for
  using Leaf<StoreRowsArgs>::Leaf;

  template <class TiledCopy>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(TiledCopy const& tiled_copy, int thread, int m, int n, int end_m,
                             int end_n, StoreRowsArgs const* args)
        : tiled_copy(tiled_copy),
          thread(thread),
          m(m),
          n(n),
          end_m(end_m),
          end_n(end_n),
          args(args) {}

    TiledCopy tiled_copy;  // of a part of the tile, from registers to shared memory
    int thread, m, n, end_m, end_n;
    StoreRowsArgs const* args;

    template <class Value, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Value, kSize> const&, int, int, int,
                              cutlass::Array<float, kSize> const& value) {
      return value;
    }

    // CUTLASS calls it for each part of the tile, with room that the part before does not take, and
    // has barriers of its own between two parts: nobody writes where another warp still reads.
    template <class Room, class Sync, class Results>
    CUTLASS_DEVICE void reduce(Room&& room, Sync const& sync, int epi_m, int epi_n, bool,
                               Results const& results) {
      using namespace cute;
      auto const copy_of_thread = tiled_copy.get_slice(thread);
      auto part =
          make_tensor<Element>(make_layout(take<0, 3>(shape(copy_of_thread.partition_S(room)))));
      constexpr int kSize = Results::value_type::kElements;
      auto vectors = recast<cutlass::Array<Element, kSize>>(part);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < size(vectors); ++i) {
        vectors(i) = cutlass::NumericArrayConverter<Element, float, kSize>{}(results(i));
      }
      copy(tiled_copy, part, copy_of_thread.partition_D(room));
      sync();

      using Shape = decltype(shape(room));
      constexpr int kRows = size<0>(Shape{}), kColumns = size<1>(Shape{});
      constexpr int kLanes = cutlass::NumThreadsPerWarp, kWarps = size(TiledCopy{}) / kLanes;
      int const lane = thread % kLanes, warp = thread / kLanes;
      int const row = m + epi_m * kRows + lane, column = n + epi_n * kColumns + warp;
      // CUTLASS swizzles pieces of 8 elements by the column's last three bits. Steps of whole warps
      // and four columns change other bits of the place than a lane and its warp do.
      static_assert(kRows == 64 && kWarps == 4 && kColumns % kWarps == 0);
      Element const* const from = &room(lane, warp);
      Element* to = static_cast<Element*>(args->y) + column * args->ldy + row;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kColumns; j += kWarps, to += kWarps * args->ldy) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kRows; i += kLanes) {
          Element const element = from[room.layout()(i, j)];
          if (row + i < end_m && column + j < end_n) to[i] = element;
        }
      }
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    auto const [end_m, end_n, end_k, batch] = args.problem_shape_mnkl;
    auto const [tile_m, tile_n, tile_k, index] = args.tile_coord_mnkl;
    return Callbacks<decltype(args.tiled_copy)>(
        args.tiled_copy, args.thread_idx, int(tile_m) * int(cute::size<0>(args.tile_shape_mnk)),
        int(tile_n) * int(cute::size<1>(args.tile_shape_mnk)), end_m, end_n, this->params_ptr);
  }
};

}  // namespace cutlass_fused::sm90
