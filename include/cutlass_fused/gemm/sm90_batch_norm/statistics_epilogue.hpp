// The epilogue of a product whose batch norm runs behind it: writes z = epilogue(acc), and the mean
// and M2 of every tile's features.
#pragma once

#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"
#include "cutlass_fused/epilogue/statistics.hpp"
#include "cutlass_fused/gemm/sm90/announcing_epilogue.hpp"
#include "cutlass_fused/gemm/sm90/kernel.hpp"
#include "cutlass_fused/norm/statistics/part_statistics.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/tile_moments.hpp"

namespace cutlass_fused {

template <class Epilogue>
struct Statistics {
  static constexpr auto& kName = Epilogue::kName;
  using Tree = StatisticsTree<typename Epilogue::Tree, kShiftsZ<Epilogue>>;

  struct Args {
    typename Epilogue::Args epilogue;
    PartPointers parts;
    Announcements announcements;

    auto operands() const { return std::make_pair(epilogue.operands(), parts); }
  };
};

template <class Epilogue, class Built>
struct CollectiveEpilogueOf<Statistics<Epilogue>, Built> {
  using type = AnnouncingEpilogue<Built>;
};

template <class Tile, class Math, class Epilogue>
struct GemmSm90For<Tile, Math, Statistics<Epilogue>> {
  static_assert(Tile::kSchedule == ScheduleSm90::kCooperative);
  using Collective = CollectiveGemmSm90<Tile, Math, Statistics<Epilogue>>;

  struct type : Collective {
    using typename Collective::Params;

    static void set_epilogue(Params& params, GemmArgs const& gemm,
                             typename Statistics<Epilogue>::Args const& args) {
      Collective::set_epilogue(params, gemm, args);
      params.epilogue.args = args.announcements;
    }
  };
};

namespace sm90 {

// The root of a visitor tree with swapped operands: sums up what it is given, and hands it on, less
// the tile's shift. kColumns: of a tile.
template <int kColumns, bool kShifted>
struct Moments : Leaf<PartPointers> {
  using Leaf<PartPointers>::Leaf;

  template <class Coordinates>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, TileThread const& at, int part,
                             int features, int rows, PartPointers const& parts)
        : coordinates(coordinates),
          at(at),
          part(part),
          features(features),
          rows(rows),
          count(count_rows<kColumns>(part, rows)),
          parts(parts) {}

    Coordinates coordinates;  // (CPY, CPY_M, CPY_N, EPI_M, EPI_N), relative to the thread's first
    TileThread at;
    int part, features, rows, count;
    PartPointers parts;
    ShiftedSums sums[TileThread::kPair];
    float shifts[TileThread::kPair] = {};  // of what is stored
    bool started = false;                  // known to the compiler, which unrolls all loops

    // Each element once; of a feature's rows the lowest first.
    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int epi_v, int epi_m,
                              int epi_n, cutlass::Array<float, kSize> const& z) {
      auto const elements = coordinates(cute::_, cute::_, cute::_, epi_m, epi_n);
      auto const pair_of = [&](int i) {
        return cute::get<0>(elements(epi_v * kSize + i)) / TileThread::kBetween;
      };
      if (!started) {
        // A thread's first numbers are its first two rows of both features.
        static_assert(kSize >= 2 * TileThread::kPair);
        float first[TileThread::kPair][2] = {};
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kSize; ++i) {
          int const row = cute::get<1>(elements(epi_v * kSize + i));
          if (row < 2) first[pair_of(i)][row] = z[i];
        }
        CUTLASS_PRAGMA_UNROLL
        for (int pair = 0; pair < TileThread::kPair; ++pair) {
          sums[pair] = start_sums(first[pair][0], first[pair][1], at, count);
          if constexpr (kShifted) {
            shifts[pair] = choose_shift(sums[pair].shift, parts.far_mean, first[pair][0],
                                        first[pair][1], at, count);
            sums[pair].shift -= shifts[pair];
          }
        }
        started = true;
      }
      // The sums are of what is stored: behind a product with a scale it takes no instruction more.
      cutlass::Array<float, kSize> stored = z;
      if constexpr (kShifted) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kSize; ++i) stored[i] = z[i] - shifts[pair_of(i)];
      }
      if (count == kColumns) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kSize; ++i) sums[pair_of(i)].add(stored[i]);
      } else {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kSize; ++i) {
          int const row = at.m + cute::get<1>(elements(epi_v * kSize + i));
          if (row < rows) sums[pair_of(i)].add(stored[i]);
        }
      }
      return stored;
    }

    CUTLASS_DEVICE void end() {
      PartStatistics const to{parts.parts, features};
      CUTLASS_PRAGMA_UNROLL
      for (int pair = 0; pair < TileThread::kPair; ++pair) {
        publish_quad(sums[pair], count, at, to, part, pair);
        if (kShifted && at.quad_lane == 0 && at.feature(pair) < features && count > 0) {
          parts.shifts[int64_t(part) * features + at.feature(pair)] = shifts[pair];
        }
      }
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    int const features = cute::get<0>(args.problem_shape_mnkl);
    int const rows = cute::get<1>(args.problem_shape_mnkl);
    TileThread const at{features - int(cute::get<0>(args.residue_tCcD)),
                        rows - int(cute::get<1>(args.residue_tCcD)),
                        args.thread_idx % TileThread::kQuad};
    return Callbacks<decltype(args.tCcD)>(args.tCcD, at, cute::get<1>(args.tile_coord_mnkl),
                                          features, rows, *this->params_ptr);
  }
};

template <class Tile, bool kSwapped, class Inner, bool kShifted>
struct TreeOf<Tile, kSwapped, StatisticsTree<Inner, kShifted>> {
  static_assert(kSwapped);
  using InnerTree = TreeOf<Tile, kSwapped, Inner>;
  using type = fusion::Sm90EVT<Moments<cute::size<1>(Tile{}), kShifted>, typename InnerTree::type>;

  template <class Pair>
  static typename type::Arguments arguments(Pair const& operands) {
    return {InnerTree::arguments(operands.first), operands.second};
  }
};

}  // namespace sm90
}  // namespace cutlass_fused
