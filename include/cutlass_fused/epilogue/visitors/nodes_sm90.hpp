// The words of operands.hpp as CUTLASS 3.x visitor nodes: Acc, Row, Col, Tile, Scalar, Compute,
// Tree.
//
// The leaves are our own: an operand's source converts its vector's run-time type and derives what
// it must (a = gamma * rstd) as it is read, once per column and output tile. CUTLASS makes the
// callbacks of all leaves before it begins any: what they ask for is under way at the same time.
#pragma once

#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp"
#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused::sm90 {

namespace fusion = cutlass::epilogue::fusion;

// What every leaf shares: its arguments are its parameters, it needs no workspace and no loads by
// the producer warp.
template <class Value>
struct Leaf {
  using Arguments = Value;
  using Params = Value;
  struct SharedStorage {};

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(ProblemShape const&, Arguments const& args,
                                                  void*) {
    return args;
  }
  template <class ProblemShape>
  static bool can_implement(ProblemShape const&, Arguments const&) {
    return true;
  }
  template <class ProblemShape>
  static size_t get_workspace_size(ProblemShape const&, Arguments const&) {
    return 0;
  }
  template <class ProblemShape>
  static cutlass::Status initialize_workspace(ProblemShape const&, Arguments const&, void*,
                                              cudaStream_t, cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }

  CUTLASS_HOST_DEVICE Leaf() {}
  CUTLASS_HOST_DEVICE Leaf(Params const& params, SharedStorage const&) : params_ptr(&params) {}

  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }
  template <class... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      fusion::detail::ProducerLoadArgs<Args...> const&) {
    return fusion::detail::EmptyProducerLoadCallbacks{};
  }

  Params const* params_ptr;
};

using Acc = fusion::Sm90AccFetch;

// The values of a tile's vector along the output's rows (kMode = 0) or columns (1), which lie in
// shared memory as fp32: a thread's own.
template <class Tile, int kMode>
struct TileVector {
  static constexpr int kExtent = cute::size<kMode>(Tile{});
  using Stride = cute::conditional_t<kMode == 0, cute::Stride<cute::_1, cute::_0>,
                                     cute::Stride<cute::_0, cute::_1>>;

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE static auto partition(float* shared,
                                       fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    auto const tile = cute::make_tensor(cute::make_smem_ptr(shared),
                                        cute::make_layout(cute::take<0, 2>(Tile{}), Stride{}));
    return fusion::sm90_partition_for_epilogue<kReferenceSource>(tile, args.epi_tile,
                                                                 args.tiled_copy, args.thread_idx);
  }

  template <class SharedTensor>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE explicit Callbacks(SharedTensor const& values) : values(values) {}

    SharedTensor values;  // (CPY, CPY_M, CPY_N, EPI_M, EPI_N)
    decltype(cute::make_tensor_like<float>(cute::take<0, 3>(values))) own;  // (CPY, CPY_M, CPY_N)

    CUTLASS_DEVICE void begin_loop(int epi_m, int epi_n) {
      // CUTLASS walks along M first.
      if (kMode == 1 && epi_m != 0) return;
      cute::copy_aligned(cute::filter(values(cute::_, cute::_, cute::_, epi_m, epi_n)),
                         cute::filter(own));
    }

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int epi_v, int, int) {
      cutlass::Array<float, kSize> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; ++i) result[i] = own(epi_v * kSize + i);
      return result;
    }
  };
};

// The source at m or n. All threads of an epilogue read the tile's vector into shared memory once,
// and their own values from there.
template <class Tile, class Source, int kMode>
struct Broadcast : Leaf<Source> {
  using Values = TileVector<Tile, kMode>;
  static constexpr int kExtent = Values::kExtent;
  struct SharedStorage {
    cute::array_aligned<float, kExtent> values;
  };

  CUTLASS_HOST_DEVICE Broadcast() {}
  CUTLASS_HOST_DEVICE Broadcast(Source const& source, SharedStorage const& storage)
      : source(&source), shared(const_cast<float*>(storage.values.data())) {}

  Source const* source;
  float* shared;

  template <int kThreads, class SharedTensor>
  struct Callbacks : Values::template Callbacks<SharedTensor> {
    static constexpr int kOwn = (kExtent + kThreads - 1) / kThreads;

    CUTLASS_DEVICE Callbacks(SharedTensor const& values, Source const* source, float* shared,
                             int first, int extent, int thread)
        : Values::template Callbacks<SharedTensor>(values),
          source(source),
          shared(shared),
          thread(thread) {
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
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        int const at = thread + i * kThreads;
        if (kExtent % kThreads == 0 || at < kExtent) shared[at] = source->convert(raw[i]);
      }
    }
    CUTLASS_DEVICE bool begin_sync_needed() const { return true; }
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

// The source at (m, n), straight from global memory into registers: a thread reads what its outputs
// need. A part of the tile's values is asked for while the part in front of it is written.
template <class Source, bool kSwapped>
struct Elements : Leaf<Source> {
  using Leaf<Source>::Leaf;

  template <class Coordinates>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    static constexpr int kPartsM = cute::size<3>(Coordinates{});

    // end_m: 0 where there is nothing to read.
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
        own(i) = !is_in ? 0.0f : kSwapped ? source(column, row) : source(row, column);
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
    Source const& source = *this->params_ptr;
    return Callbacks<decltype(args.tCcD)>(args.tCcD, end_m - cute::get<0>(args.residue_tCcD),
                                          end_n - cute::get<1>(args.residue_tCcD),
                                          source.data == nullptr ? 0 : end_m, end_n, source);
  }
};

// One value.
template <class T>
struct Scalar : Leaf<T> {
  using Leaf<T>::Leaf;

  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE explicit Callbacks(T value) : value(value) {}
    T value;

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int, int, int) {
      cutlass::Array<T, kSize> result;
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

// Fn applied to each element of the operands' fragments.
template <class Fn>
struct Compute : Leaf<Empty> {
  using Leaf<Empty>::Leaf;

  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    template <class Element, int kSize, class... Operands>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int, int, int,
                              cutlass::Array<Operands, kSize> const&... operands) {
      cutlass::Array<float, kSize> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; ++i) result[i] = Fn{}(operands[i]...);
      return result;
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const&) {
    return Callbacks();
  }
};

// Maps a word of operands.hpp to its node. In a kernel with swapped operands y's columns are the
// rows of its tile.
template <class TileShape, bool kSwapped, class Word>
struct NodeOf;
template <class TileShape, bool kSwapped>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Acc> {
  using type = Acc;
  static typename Acc::Arguments arguments(Empty) { return {}; }
};
template <class TileShape, bool kSwapped, class Source>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Row<Source>> {
  using type = Broadcast<TileShape, Source, kSwapped ? 0 : 1>;
  static Source arguments(Source const& source) { return source; }
};
template <class TileShape, bool kSwapped, class Source>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Col<Source>> {
  using type = Broadcast<TileShape, Source, kSwapped ? 1 : 0>;
  static Source arguments(Source const& source) { return source; }
};
template <class TileShape, bool kSwapped, class Source>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Tile<Source>> {
  using type = Elements<Source, kSwapped>;
  static Source arguments(Source const& source) { return source; }
};
template <class TileShape, bool kSwapped, class T>
struct NodeOf<TileShape, kSwapped, cutlass_fused::Scalar<T>> {
  using type = Scalar<T>;
  static T arguments(T value) { return value; }
};

template <class TileShape, bool kSwapped, class Word>
struct TreeOf;
template <class TileShape, bool kSwapped, class Fn, class... Operands>
struct TreeOf<TileShape, kSwapped, cutlass_fused::Tree<cutlass_fused::Compute<Fn>, Operands...>> {
  using type =
      fusion::Sm90EVT<Compute<Fn>, typename NodeOf<TileShape, kSwapped, Operands>::type...>;

  template <class Tuple>
  static typename type::Arguments arguments(Tuple const& operands) {
    return arguments(operands, std::index_sequence_for<Operands...>());
  }

 private:
  // CUTLASS's order: the children, then the node. nvcc 12.4 drops the children where a lambda
  // expands both packs.
  template <class Tuple, size_t... kAt>
  static typename type::Arguments arguments(Tuple const& operands, std::index_sequence<kAt...>) {
    return {NodeOf<TileShape, kSwapped, Operands>::arguments(std::get<kAt>(operands))..., Empty{}};
  }
};

}  // namespace cutlass_fused::sm90
