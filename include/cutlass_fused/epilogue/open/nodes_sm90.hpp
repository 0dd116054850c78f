// The words of an open epilogue as CUTLASS 3.x visitor nodes: those of nodes_sm90.hpp, less what
// the program has no operand for.
#pragma once

#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"
#include "cutlass_fused/epilogue/open/open.hpp"
#include "cutlass_fused/epilogue/open/pieces_sm90.hpp"

namespace cutlass_fused::sm90 {

// A vector's node that does nothing where there is none.
template <class TileShape, class Source, int kMode>
struct OpenBroadcast : Leaf<Source> {
  using Values = TileVector<TileShape, kMode>;
  static constexpr int kExtent = Values::kExtent;
  struct SharedStorage {
    cute::array_aligned<float, kExtent> values;
  };

  CUTLASS_HOST_DEVICE OpenBroadcast() {}
  CUTLASS_HOST_DEVICE OpenBroadcast(Source const& source, SharedStorage const& storage)
      : source(&source), shared(const_cast<float*>(storage.values.data())) {}

  Source const* source;
  float* shared;

  template <int kThreads, class SharedTensor>
  struct Callbacks : Values::template Callbacks<SharedTensor> {
    using Base = typename Values::template Callbacks<SharedTensor>;
    static constexpr int kOwn = (kExtent + kThreads - 1) / kThreads;

    CUTLASS_DEVICE Callbacks(SharedTensor const& values, Source const* source, float* shared,
                             int first, int extent, int thread)
        : Base(values), source(source), shared(shared), thread(thread) {
      if (!Source::is_used()) return;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        raw[i] = source->fetch(min(first + thread + i * kThreads, extent - 1));
      }
    }

    Source const* source;
    float* shared;
    int thread;
    typename Source::Raw raw[kOwn];

    CUTLASS_DEVICE void begin() {
      if (!Source::is_used()) return;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        int const at = thread + i * kThreads;
        if (kExtent % kThreads == 0 || at < kExtent) shared[at] = source->convert(raw[i]);
      }
    }
    CUTLASS_DEVICE bool begin_sync_needed() const { return Source::is_used(); }
    CUTLASS_DEVICE void begin_loop(int epi_m, int epi_n) {
      if (Source::is_used()) Base::begin_loop(epi_m, epi_n);
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    auto const values = Values::template partition<kReferenceSource>(shared, args);
    constexpr int kThreads = decltype(cute::size(args.tiled_copy))::value;
    return Callbacks<kThreads, std::remove_const_t<decltype(values)>>(
        values, source, shared, int(cute::get<kMode>(args.tile_coord_mnkl)) * kExtent,
        int(cute::get<kMode>(args.problem_shape_mnkl)), args.thread_idx);
  }
};

// One value, asked for beside the vectors.
template <class Source>
struct Number : Leaf<Source> {
  using Leaf<Source>::Leaf;

  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE explicit Callbacks(Source const& source)
        : source(source), raw(source.fetch(0)) {}
    Source const& source;
    typename Source::Raw raw;
    float value;

    CUTLASS_DEVICE void begin() { value = source.convert(raw); }

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int, int, int) {
      cutlass::Array<float, kSize> result;
      result.fill(value);
      return result;
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const&) {
    return Callbacks(*this->params_ptr);
  }
};

// A matrix's node that reads nothing where there is none. Whole pieces of 16-bit elements are asked
// for two parts ahead; else elements are, one part ahead.
template <int kSlot, bool kSwapped>
struct OpenElements : Leaf<OpenTile<kSlot>> {
  using Source = OpenTile<kSlot>;
  using Leaf<Source>::Leaf;

  template <class Coordinates>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    using Pieces = sm90::Pieces<Coordinates, kSwapped>;
    static constexpr int kPartsM = cute::size<3>(Coordinates{});
    static constexpr int kParts = kPartsM * cute::size<4>(Coordinates{});
    static constexpr int kCount = Pieces::kCount, kPieces = Pieces::kPieces;

    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int m, int n, int end_m, int end_n,
                             Source const& source)
        : coordinates(coordinates), m(m), n(n), end_m(end_m), end_n(end_n), source(source) {
      if (!open::is_used<kSlot>()) return;
      in_pieces = Pieces::kArePossible && open::size_of<kSlot>() == 2 &&
                  source.column_stride == 1 &&
                  is_whole_pieces(source.data, source.row_stride, kSwapped ? end_m : end_n);
      if (in_pieces) {
        fetch_pieces(0);
        fetch_pieces(1);
      } else {
        fetch(0);
      }
    }

    Coordinates coordinates;  // (CPY, CPY_M, CPY_N, EPI_M, EPI_N), relative to (m, n)
    int m, n, end_m, end_n;
    Source const& source;
    bool in_pieces;
    // The pieces of even parts and of odd ones, or the elements of one part, until they are
    // visited.
    uint32_t held[kCount];
    float own[kCount];

    // CUTLASS walks along M first.
    CUTLASS_DEVICE auto part_at(int part) const {
      return coordinates(cute::_, cute::_, cute::_, part % kPartsM, part / kPartsM);
    }

    CUTLASS_DEVICE static constexpr int word_of(int part, int piece) {
      return part % 2 * (kCount / 2) + piece * 4;
    }

    CUTLASS_DEVICE void fetch_pieces(int part) {
      if (part >= kParts) return;
      auto const at = part_at(part);
      int const end_y_m = kSwapped ? end_n : end_m, end_y_n = kSwapped ? end_m : end_n;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kPieces; ++i) {
        auto const from = Pieces::find(i, m + cute::get<0>(at(0)), n + cute::get<1>(at(0)));
        auto const* const data = static_cast<uint16_t const*>(source.data);
        bool const is_in = from.m < end_y_m && from.n < end_y_n;
        uint4 const piece = load_piece(data + from.m * source.row_stride + from.n, is_in);
        uint32_t* const to = held + word_of(part, i);
        to[0] = piece.x, to[1] = piece.y, to[2] = piece.z, to[3] = piece.w;
      }
    }

    CUTLASS_DEVICE void fetch(int part) {
      if (part >= kParts) return;
      auto const at = part_at(part);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        int const row = m + cute::get<0>(at(i)), column = n + cute::get<1>(at(i));
        bool const is_in = row < end_m && column < end_n;
        held[i] =
            __float_as_uint(source.load(kSwapped ? column : row, kSwapped ? row : column, is_in));
      }
    }

    CUTLASS_DEVICE void previsit(int epi_m, int epi_n, int, bool) {
      if (!open::is_used<kSlot>()) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kCount; ++i) own[i] = 0.0f;
      } else if (in_pieces) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kPieces; ++i) {
          uint32_t const* const from = held + word_of(epi_m + epi_n * kPartsM, i);
          Pieces::template scatter<kSlot>({from[0], from[1], from[2], from[3]}, i, own);
        }
      } else {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kCount; ++i) own[i] = __uint_as_float(held[i]);
      }
    }

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int epi_v, int, int) {
      cutlass::Array<float, kSize> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; ++i) result[i] = own[epi_v * kSize + i];
      return result;
    }

    // Behind the visits of a part.
    template <class Shared, class Synchronize, class Results>
    CUTLASS_DEVICE void reduce(Shared&&, Synchronize const&, int epi_m, int epi_n, bool, Results) {
      if (!open::is_used<kSlot>() || in_pieces) return;
      fetch(epi_m + epi_n * kPartsM + 1);
    }
    CUTLASS_DEVICE void end_loop(int epi_m, int epi_n) {
      if (!open::is_used<kSlot>() || !in_pieces) return;
      fetch_pieces(epi_m + epi_n * kPartsM + 2);
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    int const end_m = cute::get<0>(args.problem_shape_mnkl);
    int const end_n = cute::get<1>(args.problem_shape_mnkl);
    return Callbacks<decltype(args.tCcD)>(args.tCcD, end_m - cute::get<0>(args.residue_tCcD),
                                          end_n - cute::get<1>(args.residue_tCcD), end_m, end_n,
                                          *this->params_ptr);
  }
};

// The outputs beside y: the program leaves a part's values in registers, which are written when it
// has left all of them.
template <bool kSwapped>
struct OutputsOf : Leaf<OpenOutputs> {
  using Leaf<OpenOutputs>::Leaf;

  template <class Coordinates>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    using Parts = Pieces<Coordinates, kSwapped>;
    static constexpr int kCount = Parts::kCount;

    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int m, int n,
                             OpenOutputs const* outputs)
        : coordinates(coordinates), m(m), n(n), outputs(outputs) {}

    Coordinates coordinates;  // (CPY, CPY_M, CPY_N, EPI_M, EPI_N), relative to (m, n)
    int m, n;
    OpenOutputs const* outputs;
    float kept[open::kOutputs - 1][kCount];

    // Where the values of one element stay.
    struct Place {
      float* first;

      template <int kOutput>
      CUTLASS_DEVICE void write(float value) const {
        first[(kOutput - 1) * kCount] = value;
      }
    };

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int epi_v, int, int) {
      cutlass::Array<Place, kSize> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; ++i) result[i] = {&kept[0][epi_v * kSize + i]};
      return result;
    }

    // Behind the barrier of a part of y, which would wait for these.
    CUTLASS_DEVICE void end_loop(int epi_m, int epi_n) {
      write<1>(epi_m, epi_n);
      write<2>(epi_m, epi_n);
    }

    template <int kOutput>
    CUTLASS_DEVICE void write(int epi_m, int epi_n) {
      constexpr int kSlot = open::kFirstOutput + kOutput;
      if (!open::is_used<kSlot>()) return;
      OpenOutputs::Output const& output = outputs->outputs[kOutput - 1];
      float const* const values = kept[kOutput - 1];
      auto const at = coordinates(cute::_, cute::_, cute::_, epi_m, epi_n);
      int const row = m + cute::get<0>(at(0)), column = n + cute::get<1>(at(0));
      if (Parts::kArePossible && open::size_of<kSlot>() == 2 &&
          is_whole_pieces(output.data, output.ld, outputs->columns)) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < Parts::kPieces; ++i) {
          uint4 const piece = Parts::template gather<kSlot>(values, i);
          auto const to = Parts::find(i, row, column);
          bool const is_in = to.m < outputs->rows && to.n < outputs->columns;
          store_piece(static_cast<uint16_t*>(output.data) + to.m * output.ld + to.n, is_in, piece);
        }
        return;
      }
      int const end_m = kSwapped ? outputs->columns : outputs->rows;
      int const end_n = kSwapped ? outputs->rows : outputs->columns;
      int64_t const along_m = kSwapped ? 1 : output.ld, along_n = kSwapped ? output.ld : 1;
      char* const first = static_cast<char*>(output.data) +
                          (row * along_m + column * along_n) * open::size_of<kSlot>();
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        int const right = cute::get<0>(at(i)) - cute::get<0>(at(0));
        int const down = cute::get<1>(at(i)) - cute::get<1>(at(0));
        bool const is_in = row + right < end_m && column + down < end_n;
        if (open::size_of<kSlot>() == 4) {
          auto* const to = reinterpret_cast<float*>(first);
          if (is_in) to[right * along_m + down * along_n] = values[i];
        } else {
          open::store<kSlot>(first, right * along_m + down * along_n, is_in, values[i]);
        }
      }
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    int const end_m = cute::get<0>(args.problem_shape_mnkl);
    int const end_n = cute::get<1>(args.problem_shape_mnkl);
    return Callbacks<decltype(args.tCcD)>(args.tCcD, end_m - cute::get<0>(args.residue_tCcD),
                                          end_n - cute::get<1>(args.residue_tCcD),
                                          this->params_ptr);
  }
};

template <class TileShape, bool kSwapped, int kSlot>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Row<OpenVector<kSlot>>> {
  using type = OpenBroadcast<TileShape, OpenVector<kSlot>, kSwapped ? 0 : 1>;
  static OpenVector<kSlot> arguments(OpenVector<kSlot> const& source) { return source; }
};
template <class TileShape, bool kSwapped, int kSlot>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Col<OpenVector<kSlot>>> {
  using type = OpenBroadcast<TileShape, OpenVector<kSlot>, kSwapped ? 1 : 0>;
  static OpenVector<kSlot> arguments(OpenVector<kSlot> const& source) { return source; }
};
template <class TileShape, bool kSwapped, class Source>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Number<Source>> {
  using type = Number<Source>;
  static Source arguments(Source const& source) { return source; }
};
template <class TileShape, bool kSwapped, int kSlot>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Tile<OpenTile<kSlot>>> {
  using type = OpenElements<kSlot, kSwapped>;
  static OpenTile<kSlot> arguments(OpenTile<kSlot> const& source) { return source; }
};
template <class TileShape, bool kSwapped>
struct NodeOf<TileShape, kSwapped, Places> {
  using type = OutputsOf<kSwapped>;
  static OpenOutputs arguments(OpenOutputs const& outputs) { return outputs; }
};

}  // namespace cutlass_fused::sm90
