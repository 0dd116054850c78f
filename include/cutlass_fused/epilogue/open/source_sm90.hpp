// OpenSource: Open whose first matrix is of y's type and comes by TMA, while the tile is
// multiplied. Read from registers' positions, 128x256 outputs of 16 bits would be 128 loads of two
// bytes to a thread.
#pragma once

#include "cutlass_fused/epilogue/open/nodes_sm90.hpp"
#include "cutlass_fused/gemm/sm90/kernel.hpp"

namespace cutlass_fused {

// A word: the collective's source matrix.
template <int kSlot>
struct SourceOf {};
template <int kSlot>
struct OperandArgs<SourceOf<kSlot>> {
  using type = Empty;
};

struct OpenSource : Open {
  using Tree = Add<Add<WithScalars, SourceOf, open::kSourceSlot, 1>, TileOf, open::kSourceSlot + 1,
                   open::kTiles - 1>;

  struct Args : Open::Args {
    auto operands() const {
      return std::tuple_cat(collect_vectors(std::make_integer_sequence<int, open::kFirstTile>{}),
                            std::make_tuple(Empty{}, second_tile()));
    }
  };
};

template <>
constexpr bool reads_source<OpenSource> = true;

// Callers hand Open's.
template <>
struct UnpackArgs<OpenSource> {
  static OpenSource::Args unpack(ProductLaunch const& call) {
    return {UnpackArgs<Open>::unpack(call)};
  }
};

template <>
struct OpenCall<OpenSource> : OpenCall<Open> {
  static Source source(ProductLaunch const& call) {
    OpenTile<0> const& tile = UnpackArgs<Open>::unpack(call).tiles[0];
    return {tile.data, tile.row_stride};
  }
};

namespace sm90 {

template <int kSlot>
struct SourceNode : Leaf<Empty> {
  using Leaf<Empty>::Leaf;

  CUTLASS_DEVICE bool is_producer_load_needed() const { return open::is_used<kSlot>(); }
  CUTLASS_DEVICE bool is_C_load_needed() const { return open::is_used<kSlot>(); }

  template <class Fragment>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE explicit Callbacks(Fragment const& fragment) : fragment(fragment) {}

    Fragment const& fragment;  // (CPY, CPY_M, CPY_N)

    // The program converts elements, so that kernels of fp16 and of bf16 differ in the product
    // alone (src/build_system/open_kernels.py).
    template <class Accumulator, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Accumulator, kSize> const&, int epi_v, int, int) {
      using Value = typename Fragment::value_type;
      using Bits = std::conditional_t<sizeof(Value) == 2, uint16_t, uint32_t>;
      auto const values = cute::recast<cutlass::Array<Bits, kSize>>(fragment)(epi_v);
      cutlass::Array<float, kSize> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; ++i) result[i] = open::convert<kSlot>(values[i]);
      return result;
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    return Callbacks<std::decay_t<decltype(args.tCrC)>>(args.tCrC);
  }
};

template <class TileShape, bool kSwapped, int kSlot>
struct NodeOf<TileShape, kSwapped, cutlass_fused::SourceOf<kSlot>> {
  using type = SourceNode<kSlot>;
  static Empty arguments(Empty) { return {}; }
};

}  // namespace sm90
}  // namespace cutlass_fused
