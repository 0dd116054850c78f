// A tile's rows of a weight that lies along K, as TMA brings them to a kernel that slices K.
// fp16x3_sm90/weight_along_n.hpp has the same for parts that lie along N.
#pragma once

#include "cute/tensor.hpp"
#include "cute/algorithm/prefetch.hpp"
#include "cute/atom/copy_traits_sm90_tma.hpp"

namespace cutlass_fused {

// kM rows of them, which may be fewer than an instruction has. Staged: (rows, K, stages) in shared
// memory, as CUTLASS's mainloop has it.
template <class Element, int kM, class Staged>
struct WeightAlongK {
  using SharedLayout = Staged;
  using K = decltype(cute::size<1>(Staged{}));
  using LoadedShape = cute::Shape<cute::Int<kM>, K>;
  using LoadedRows = decltype(cute::composition(
      Staged{}, cute::make_tile(cute::Layout<cute::Int<kM>>{}, cute::Layout<K>{},
                                cute::Layout<decltype(cute::size<2>(Staged{}))>{})));

  static auto make_load(Element const* weight, int n, int k, int64_t ld) {
    auto const matrix = cute::make_tensor(
        weight, cute::make_layout(cute::make_shape(n, k), cute::make_stride(ld, cute::_1{})));
    return cute::make_tma_copy(cute::SM90_TMA_LOAD{}, matrix,
                               LoadedRows{}(cute::_, cute::_, cute::_0{}), LoadedShape{},
                               cute::_1{});
  }
  using Load = decltype(make_load(nullptr, 0, 0, 0));

  // One thread calls it: the stage-th piece of K of the weight's rows from kM * tile on, to L2.
  CUTLASS_DEVICE static void prefetch(Load const& load, int n, int k, int tile, int stage) {
    using namespace cute;
    auto const weight =
        local_tile(load.get_tma_tensor(make_shape(n, k)), LoadedShape{}, make_coord(tile, _));
    auto const from = load.get_slice(0).partition_S(weight);
    cute::prefetch(load, from(_, _, _, stage));
  }
};

}  // namespace cutlass_fused
