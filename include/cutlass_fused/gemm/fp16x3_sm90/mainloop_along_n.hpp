// The mainloop of fp16x3 with a weight whose parts lie along N (weight_along_n.hpp).
#pragma once

#include "cutlass_fused/gemm/fp16x3/mainloop_sm90.hpp"
#include "cutlass_fused/gemm/fp16x3_sm90/weight_along_n.hpp"

namespace cutlass_fused {

// Made of one of CUTLASS for an A along M, of which the instructions remain: the weight is A.
template <class Base>
struct SplitMainloopAlongN : SplitMainloop<Base> {
  using typename Base::MainloopPipeline;
  using typename Base::PipelineState;
  using typename Base::TensorStorage;
  using typename Base::TileShape;
  using Element = typename Base::ElementA;
  using Weight = WeightAlongN<Element, cute::size<0>(TileShape{}),
                              int(sizeof(Element)) * cute::size<2>(TileShape{}),
                              Base::DispatchPolicy::Stages, /*kPairs=*/true>;
  using SmemLayoutA = typename Weight::SharedLayout;
  static_assert(cute::cosize_v<SmemLayoutA> == cute::cosize_v<typename Base::SmemLayoutA>);

  struct Arguments : Base::Arguments {
    int64_t depth;  // rows of the weight's parts
  };
  struct Params {
    using TMA_B = typename Base::Params::TMA_B;
    typename Weight::Load tma_load_a;
    TMA_B tma_load_b;
    uint32_t tma_transaction_bytes;
  };

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(ProblemShape const& shape, Arguments const& args,
                                                  void*) {
    using namespace cute;
    auto const x = reinterpret_cast<typename Base::InternalElementB const*>(args.ptr_B);
    auto const matrix =
        make_tensor(x, make_layout(make_shape(get<1>(shape), get<2>(shape), 1), args.dB));
    return {Weight::make_load(args.ptr_A, args.depth, get<1>(args.dA)),
            make_tma_copy_B_sm90(typename Base::GmemTiledCopyB{}, matrix,
                                 typename Base::SmemLayoutB{}(_, _, _0{}), TileShape{},
                                 typename Base::DispatchPolicy::ClusterShape{}),
            Base::TmaTransactionBytes};
  }

  CUTLASS_DEVICE static void prefetch_tma_descriptors(Params const& params) {
    cute::prefetch_tma_descriptor(params.tma_load_a.get_tma_descriptor());
    cute::prefetch_tma_descriptor(params.tma_load_b.get_tma_descriptor());
  }

  // CUTLASS's kernels count tiles by the first one of these.
  template <class ProblemShape>
  CUTLASS_DEVICE auto load_init(ProblemShape const& shape, Params const& params) const {
    using namespace cute;
    auto const [m, n, k, batch] = shape;
    auto const weight = make_identity_tensor(make_shape(m, k, batch));
    auto const x = params.tma_load_b.get_tma_tensor(make_shape(n, k, batch));
    return make_tuple(
        local_tile(weight, TileShape{}, make_coord(_, _, _), Step<_1, Underscore, _1>{}),
        local_tile(x, TileShape{}, make_coord(_, _, _), Step<Underscore, _1, _1>{}));
  }

  template <class TilesA, class TilesB, class Iterator, class Coordinates>
  CUTLASS_DEVICE void load(Params const& params, MainloopPipeline pipeline, PipelineState write,
                           cute::tuple<TilesA, TilesB> const& tiles, Coordinates const& coordinates,
                           Iterator stage, int stages, int, uint32_t rank, TensorStorage& shared) {
    using namespace cute;
    if (!elect_one_sync()) return;
    using Cluster = typename Base::DispatchPolicy::ClusterShape;
    static_assert(size<1>(Cluster{}) == 1, "no two blocks of a cluster share rows of the weight");
    int const tile = get<0>(coordinates);
    auto const own = params.tma_load_b.get_slice(rank);
    auto const from =
        own.partition_S(get<1>(tiles)(_, _, get<1>(coordinates), _, get<3>(coordinates)));
    auto to = own.partition_D(
        make_tensor(make_smem_ptr(shared.smem_B.data()), typename Base::SmemLayoutB{}));
    uint16_t const everyone = uint16_t((1 << size<0>(Cluster{})) - 1);  // take the rows of x
    constexpr int kStage = Base::TmaTransactionBytesMK / sizeof(Element);
    CUTLASS_PRAGMA_NO_UNROLL
    for (; stages > 0; --stages, ++stage, ++write) {
      pipeline.producer_acquire(write);
      auto* const barrier = pipeline.producer_get_barrier(write);
      int const index = write.index();
      Weight::copy(params.tma_load_a, reinterpret_cast<uint64_t*>(barrier),
                   uint64_t(TMA::CacheHintSm90::EVICT_NORMAL),
                   shared.smem_A.data() + index * kStage, tile, int(get<0>(*stage)));
      copy(params.tma_load_b.with(*barrier, everyone), from(_, _, _, *stage), to(_, _, _, index));
    }
  }

  template <class Sums>
  CUTLASS_DEVICE void mma(MainloopPipeline pipeline, PipelineState read, Sums& sums, int stages,
                          int thread, TensorStorage& shared, Params const&) {
    this->template multiply<SmemLayoutA>(pipeline, read, sums, stages, thread, shared);
  }
};

}  // namespace cutlass_fused
