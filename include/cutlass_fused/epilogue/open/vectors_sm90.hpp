// An open epilogue's vectors and numbers as CUTLASS 3.x visitor nodes. The warp that loads a source
// reads them, while the tiles before theirs are multiplied and written: behind the mainloop, every
// tile would wait for the way to L2 and back.
#pragma once

#include "cutlass_fused/epilogue/open/open.hpp"
#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"

namespace cutlass_fused::sm90 {

// Each tile's first part comes with what was read for the tile. The warp is less than two tiles
// ahead, so that there are two of everything: a tile has no fewer parts than there is room for
// (choose_loads() of gemm/sm90/kernel.hpp; beside that, CUTLASS has room for four).
constexpr int kTilesAhead = 2;

template <class Args>
constexpr int kPartsOf =
    cute::size<0>(decltype(Args::tile_shape_mnk){}) *
    cute::size<1>(decltype(Args::tile_shape_mnk){}) / cute::size(decltype(Args::epi_tile){});
CUTLASS_DEVICE bool is_first_part(int epi_m, int epi_n) { return epi_m == 0 && epi_n == 0; }
// Which of what there is two of is a tile's.
template <int kParts>
CUTLASS_DEVICE int kept_at(int iteration) {
  return unsigned(iteration) / kParts % kTilesAhead;
}

// A vector's node that does nothing where there is none.
template <class TileShape, class Source, int kMode>
struct OpenBroadcast : Leaf<Source> {
  using Values = TileVector<TileShape, kMode>;
  static constexpr int kExtent = Values::kExtent;
  struct SharedStorage {
    cute::array_aligned<float, kTilesAhead * kExtent> values;
  };

  CUTLASS_HOST_DEVICE OpenBroadcast() {}
  CUTLASS_HOST_DEVICE OpenBroadcast(Source const& source, SharedStorage const& storage)
      : source(&source), shared(const_cast<float*>(storage.values.data())) {}

  Source const* source;
  float* shared;

  CUTLASS_DEVICE bool is_producer_load_needed() const { return Source::is_used(); }

  template <int kParts>
  struct LoadCallbacks : fusion::detail::EmptyProducerLoadCallbacks {
    static constexpr int kLanes = cutlass::NumThreadsPerWarp;
    static constexpr int kOwn = (kExtent + kLanes - 1) / kLanes;

    CUTLASS_DEVICE LoadCallbacks(Source const* source, float* shared, int first, int extent,
                                 int lane)
        : source(source), shared(shared), first(first), extent(extent), lane(lane) {}

    Source const* source;
    float* shared;
    int first, extent, lane;
    typename Source::Raw raw[kOwn];

    CUTLASS_DEVICE void begin() {
      if (!Source::is_used()) return;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        raw[i] = source->fetch(min(first + lane + i * kLanes, extent - 1));
      }
    }

    // Behind the wait for the part's memory, in front of the arrival of all lanes.
    CUTLASS_DEVICE void step(uint64_t*, int epi_m, int epi_n, int iteration, bool) {
      if (!Source::is_used() || !is_first_part(epi_m, epi_n)) return;
      float* const to = shared + kept_at<kParts>(iteration) * kExtent;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        int const at = lane + i * kLanes;
        if (kExtent % kLanes == 0 || at < kExtent) to[at] = source->convert(raw[i]);
      }
    }
  };

  template <class... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      fusion::detail::ProducerLoadArgs<Args...> const& args) {
    return LoadCallbacks<kPartsOf<fusion::detail::ProducerLoadArgs<Args...>>>(
        source, shared, int(cute::get<kMode>(args.tile_coord_mnkl)) * kExtent,
        int(cute::get<kMode>(args.problem_shape_mnkl)), args.thread_idx);
  }

  template <int kParts, class SharedTensor>
  struct Callbacks : Values::template Callbacks<SharedTensor> {
    using Base = typename Values::template Callbacks<SharedTensor>;
    using Base::Base;

    int offset;  // of the tile's values

    CUTLASS_DEVICE void begin_loop(int, int) {}

    // Behind the wait for a part's loads.
    CUTLASS_DEVICE void previsit(int epi_m, int epi_n, int iteration, bool) {
      if (!Source::is_used()) return;
      if (is_first_part(epi_m, epi_n)) offset = kept_at<kParts>(iteration) * kExtent;
      // What changes along the other direction alone is there. CUTLASS walks along M first.
      constexpr bool kIsOneStep = cute::size<3>(SharedTensor{}) == 1;
      if (kMode == 1 ? epi_m != 0 : kIsOneStep && epi_n != 0) return;
      auto const part = cute::filter(this->values(cute::_, cute::_, cute::_, epi_m, epi_n));
      cute::copy_aligned(cute::make_tensor(part.data() + offset, part.layout()),
                         cute::filter(this->own));
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    auto const values = Values::template partition<kReferenceSource>(shared, args);
    return Callbacks<kPartsOf<fusion::detail::ConsumerStoreArgs<Args...>>,
                     std::remove_const_t<decltype(values)>>(values);
  }
};

// One value, which comes as the vectors do where it lies in memory.
template <class Source>
struct Number : Leaf<Source> {
  struct SharedStorage {
    float values[kTilesAhead];
  };

  CUTLASS_HOST_DEVICE Number() {}
  CUTLASS_HOST_DEVICE Number(Source const& source, SharedStorage const& storage)
      : source(&source), shared(const_cast<float*>(storage.values)) {}

  Source const* source;
  float* shared;

  CUTLASS_DEVICE bool is_producer_load_needed() const { return Source::is_in_memory(); }

  template <int kParts>
  struct LoadCallbacks : fusion::detail::EmptyProducerLoadCallbacks {
    CUTLASS_DEVICE LoadCallbacks(Source const* source, float* shared, int lane)
        : source(source), shared(shared), lane(lane) {}

    Source const* source;
    float* shared;
    int lane;
    typename Source::Raw raw;

    CUTLASS_DEVICE void begin() {
      if (Source::is_in_memory()) raw = source->fetch(0);
    }
    CUTLASS_DEVICE void step(uint64_t*, int epi_m, int epi_n, int iteration, bool) {
      if (!Source::is_in_memory() || !is_first_part(epi_m, epi_n) || lane != 0) return;
      shared[kept_at<kParts>(iteration)] = source->convert(raw);
    }
  };

  template <class... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      fusion::detail::ProducerLoadArgs<Args...> const& args) {
    return LoadCallbacks<kPartsOf<fusion::detail::ProducerLoadArgs<Args...>>>(source, shared,
                                                                              args.thread_idx);
  }

  template <int kParts>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Source const* source, float const* shared)
        : source(source), shared(shared) {}
    Source const* source;
    float const* shared;
    float value;

    CUTLASS_DEVICE void begin() {
      if (!Source::is_in_memory()) value = read(*source, 0);
    }
    CUTLASS_DEVICE void previsit(int epi_m, int epi_n, int iteration, bool) {
      if (!Source::is_in_memory() || !is_first_part(epi_m, epi_n)) return;
      value = shared[kept_at<kParts>(iteration)];
    }

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int, int, int) {
      cutlass::Array<float, kSize> result;
      result.fill(value);
      return result;
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    return Callbacks<kPartsOf<fusion::detail::ConsumerStoreArgs<Args...>>>(source, shared);
  }
};

}  // namespace cutlass_fused::sm90
