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

// A matrix's node that reads nothing where there is none; else as Elements does.
template <class Source, bool kSwapped>
struct OpenElements : Leaf<Source> {
  using Leaf<Source>::Leaf;

  template <class Coordinates>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    static constexpr int kPartsM = cute::size<3>(Coordinates{});

    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int m, int n, int end_m, int end_n,
                             Source const& source)
        : coordinates(coordinates), m(m), n(n), end_m(end_m), end_n(end_n), source(source) {
      fetch(0, 0);
    }

    Coordinates coordinates;  // (CPY, CPY_M, CPY_N, EPI_M, EPI_N), relative to (m, n)
    int m, n, end_m, end_n;
    Source const& source;
    decltype(cute::make_tensor<float>(
        cute::shape(coordinates(cute::_, cute::_, cute::_, 0, 0)))) own;  // (CPY, CPY_M, CPY_N)

    CUTLASS_DEVICE void fetch(int epi_m, int epi_n) {
      auto const at = coordinates(cute::_, cute::_, cute::_, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < cute::size(own); ++i) {
        int const row = m + cute::get<0>(at(i)), column = n + cute::get<1>(at(i));
        bool const is_in = row < end_m && column < end_n;
        own(i) = source.load(kSwapped ? column : row, kSwapped ? row : column, is_in);
      }
    }

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int epi_v, int, int) {
      cutlass::Array<float, kSize> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; ++i) result[i] = own(epi_v * kSize + i);
      return result;
    }

    // Behind the visits of a part. CUTLASS walks along M first.
    template <class Shared, class Synchronize, class Results>
    CUTLASS_DEVICE void reduce(Shared&&, Synchronize const&, int epi_m, int epi_n, bool is_last,
                               Results) {
      if (is_last) return;
      bool const is_in_column = epi_m + 1 < kPartsM;
      fetch(is_in_column ? epi_m + 1 : 0, is_in_column ? epi_n : epi_n + 1);
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

    // Behind the visits of a part.
    template <class Shared, class Synchronize, class Results>
    CUTLASS_DEVICE void reduce(Shared&&, Synchronize const&, int epi_m, int epi_n, bool, Results) {
      write<1>(epi_m, epi_n);
      write<2>(epi_m, epi_n);
    }

    template <int kOutput>
    CUTLASS_DEVICE void write(int epi_m, int epi_n) {
      constexpr int kSlot = open::kFirstOutput + kOutput;
      if (!open::is_used<kSlot>()) return;
      OpenOutputs::Output const& output = outputs->outputs[kOutput - 1];
      auto const at = coordinates(cute::_, cute::_, cute::_, epi_m, epi_n);
      if (Parts::kArePossible && open::size_of<kSlot>() == 2 &&
          is_whole_pieces(output.data, output.ld, outputs->columns)) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < Parts::kPieces; ++i) {
          uint4 const piece = Parts::template gather<kSlot>(kept[kOutput - 1], i);
          auto const to = Parts::find(i, m + cute::get<0>(at(0)), n + cute::get<1>(at(0)));
          bool const is_in = to.m < outputs->rows && to.n < outputs->columns;
          store_piece(static_cast<uint16_t*>(output.data) + to.m * output.ld + to.n, is_in, piece);
        }
      } else {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kCount; ++i) {
          int const row = m + cute::get<0>(at(i)), column = n + cute::get<1>(at(i));
          OpenOutputs::Place{outputs, kSwapped ? column : row, kSwapped ? row : column}
              .template write<kOutput>(kept[kOutput - 1][i]);
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
  using type = OpenElements<OpenTile<kSlot>, kSwapped>;
  static OpenTile<kSlot> arguments(OpenTile<kSlot> const& source) { return source; }
};
template <class TileShape, bool kSwapped>
struct NodeOf<TileShape, kSwapped, Places> {
  using type = OutputsOf<kSwapped>;
  static OpenOutputs arguments(OpenOutputs const& outputs) { return outputs; }
};

}  // namespace cutlass_fused::sm90
