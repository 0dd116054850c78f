// The SM100 kernel type: GemmSm100<Tile, Math, Epilogue>, for the tensor cores of compute
// capability 10.0, whose accumulators lie in a memory of their own. A skeleton: it compiles for
// sm_100a, and no GPU has run it. Only a build that names 10.0a has it.
#pragma once

#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass_fused/common/element.hpp"
#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"
#include "cutlass_fused/gemm/launch.hpp"
#include "cutlass_fused/gemm/sm100/tiles.hpp"

namespace cutlass_fused {

namespace sm100 {

namespace fusion = cutlass::epilogue::fusion;

// The root of a visitor tree: its results in the type of y, which SM90's collective converts to by
// itself.
template <class Element>
struct Convert : sm90::Leaf<Empty> {
  using sm90::Leaf<Empty>::Leaf;

  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    template <class Accumulator, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Accumulator, kSize> const&, int, int, int,
                              cutlass::Array<float, kSize> const& values) {
      return cutlass::NumericArrayConverter<Element, float, kSize>{}(values);
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const&) {
    return Callbacks();
  }
};

}  // namespace sm100

template <class Tile_, class Math, class Epilogue>
struct GemmSm100 {
  using Tile = Tile_;
  using Element = typename ElementOf<operand_type<Math>>::type;
  static_assert(Math::kEngine == Engine::kPlain);

  // A and B configuration: x (M, K) and weight (N, K), both row-major
  using LayoutA = cutlass::layout::RowMajor;
  using LayoutB = cutlass::layout::ColumnMajor;
  static constexpr int kAlignment = 16 / sizeof(Element);  // of every row: what TMA asks for
  // D configuration: y (M, N) row-major
  using ElementD = typename ElementOf<Math::kOut>::type;
  using LayoutD = cutlass::layout::RowMajor;

  // Kernel configuration
  using TileShape = cute::Shape<cute::Int<Tile::kM>, cute::Int<Tile::kN>,
                                cute::Int<Tile::kBytesK / sizeof(Element)>>;
  using ClusterShape = cute::Shape<cute::_1, cute::_1, cute::_1>;

  // Epilogue: convert(tree(operands)), which TMA writes
  using TreeOf = sm90::TreeOf<TileShape, /*kSwapped=*/false, typename Epilogue::Tree>;
  using Visitor = sm90::fusion::Sm90EVT<sm100::Convert<ElementD>, typename TreeOf::type>;
  using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm100, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto,  //
      float, float,                                     // accumulator, epilogue
      void, LayoutD, kAlignment,                        // C
      ElementD, LayoutD, kAlignment,                    // D
      cutlass::epilogue::TmaWarpSpecialized1Sm, Visitor>::CollectiveOp;

  // Mainloop: as many stages as there is memory left for
  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm100, cutlass::arch::OpClassTensorOp,  //
      Element, LayoutA, kAlignment,                          // A
      Element, LayoutB, kAlignment,                          // B
      float, TileShape, ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<int(
          sizeof(typename CollectiveEpilogue::SharedStorage))>,
      cutlass::gemm::KernelTmaWarpSpecialized1SmSm100>::CollectiveOp;

  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>,
                                                      CollectiveMainloop, CollectiveEpilogue>;
  using Arguments = typename Kernel::Arguments;
  using Params = typename Kernel::Params;
  static constexpr int kThreads = Kernel::MaxThreadsPerBlock;
  static constexpr int kSharedMemory = Kernel::SharedStorageSize;

  static Params make_params(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                            Device const& device) {
    Arguments args{};
    args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    args.hw_info.device_id = device.index;
    args.hw_info.sm_count = device.sm_count;
    args.problem_shape = {int(gemm.m), int(gemm.n), int(gemm.k), 1};
    // A matrix of one row has no distance between rows: TMA wants one all the same.
    int64_t const k = ceil_div(gemm.k, kAlignment) * kAlignment;
    args.mainloop = {static_cast<Element const*>(gemm.x),
                     {gemm.m > 1 ? gemm.ldx : k, {}, {}},
                     static_cast<Element const*>(gemm.weight),
                     {gemm.n > 1 ? gemm.ldw : k, {}, {}}};
    args.epilogue.thread = {TreeOf::arguments(epilogue.operands()), Empty{}};
    args.epilogue.ptr_D = static_cast<ElementD*>(gemm.y);
    cute::get<0>(args.epilogue.dD) = gemm.ldy;
    return Kernel::to_underlying_arguments(args, nullptr);
  }
};

template <class Tile, class Math, class Epilogue>
__global__ void __launch_bounds__(GemmSm100<Tile, Math, Epilogue>::kThreads, 1)
    gemm_sm100(__grid_constant__ typename GemmSm100<Tile, Math, Epilogue>::Params const params) {
  extern __shared__ __align__(1024) char shared_memory[];
  typename GemmSm100<Tile, Math, Epilogue>::Kernel{}(params, shared_memory);
}

}  // namespace cutlass_fused
