// The SM90 kernel type: GemmSm90<Tile, Math, Epilogue>, warp-specialised TMA and WGMMA. A CUTLASS
// 3.x kernel, or our own where the tile is a split one. Included by generated files only.
#pragma once

// CUTLASS's kernels wait for the kernel before them in the stream, which lets them be launched
// while that one ends.
#ifndef CUTLASS_ENABLE_GDC_FOR_SM90
#define CUTLASS_ENABLE_GDC_FOR_SM90
#endif

#include "cutlass/arch/grid_dependency_control.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass_fused/epilogue/visitors/store_rows_sm90.hpp"
#include "cutlass_fused/epilogue/visitors/store_sm90.hpp"
#include "cutlass_fused/gemm/sm90/columns_ahead.hpp"
#include "cutlass_fused/gemm/sm90/descriptor.hpp"
#include "cutlass_fused/gemm/launch.hpp"
#include "cutlass_fused/common/element.hpp"
#include "cutlass_fused/gemm/sm90_split_k/kernel.hpp"
#include "cutlass_fused/gemm/fp16x3_sm90/mainloop_along_n.hpp"
#include "cutlass_fused/gemm/sm90/tiles.hpp"

namespace cutlass_fused {

template <ScheduleSm90>
struct SchedulesOf;
template <>
struct SchedulesOf<ScheduleSm90::kCooperative> {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::TmaWarpSpecializedCooperative;
};
template <>
struct SchedulesOf<ScheduleSm90::kPingpong> {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
};
template <>
struct SchedulesOf<ScheduleSm90::kSingle> {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecialized;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
};

// A mainloop with its sums added into fp32 registers from time to time. The tensor cores'
// accumulator truncates, which a 16-bit result hides and an fp32 one does not: over a K of 4096 its
// error passes twice that of cuBLAS, where cuBLAS splits K. CUTLASS has this for fp8.
template <class Mainloop>
struct WithPromotion;
template <int kStages, class Cluster, class Schedule, class... Rest>
struct WithPromotion<cutlass::gemm::collective::CollectiveMma<
    cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<kStages, Cluster, Schedule>, Rest...>> {
  using type = cutlass::gemm::collective::CollectiveMma<
      cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<kStages, Cluster, Schedule>, Rest...>;
};

// An epilogue with room for kStores parts of a tile in shared memory, each of which is written at
// once. CUTLASS has room for two, and writes one when it has computed the next.
template <int kStores, class Built>
struct WithStores;
template <int kStores, int kLoads, int kTwo, int kFragment, bool kReuses, bool kDelays,
          class... Rest>
struct WithStores<
    kStores,
    cutlass::epilogue::collective::CollectiveEpilogue<
        cutlass::epilogue::Sm90TmaWarpSpecialized<kLoads, kTwo, kFragment, kReuses, kDelays>,
        Rest...>> {
  using type = cutlass::epilogue::collective::CollectiveEpilogue<
      cutlass::epilogue::Sm90TmaWarpSpecialized<kLoads, kStores, kFragment, kReuses, false>,
      Rest...>;
};

// An epilogue with room for kRoom parts of its source, which become y's. CUTLASS has room for four,
// of which one is computed and one is written: too few are on their way to hide how long they take.
template <int kRoom, class Built>
struct WithLoads {
  using type = Built;
};
template <int kRoom, int kLoads, int kTwo, int kFragment, bool kReuses, bool kDelays, class... Rest>
struct WithLoads<
    kRoom, cutlass::epilogue::collective::CollectiveEpilogue<
               cutlass::epilogue::Sm90TmaWarpSpecialized<kLoads, kTwo, kFragment, kReuses, kDelays>,
               Rest...>> {
  using type = cutlass::epilogue::collective::CollectiveEpilogue<
      cutlass::epilogue::Sm90TmaWarpSpecialized<kRoom, kTwo, kFragment, kReuses, kDelays>, Rest...>;
};

// Whether the collective reads a matrix of y's type and shape by TMA for its epilogue.
template <class Epilogue>
constexpr bool reads_source = false;
template <class Epilogue>
constexpr bool reads_source<Unscaled<Epilogue>> = reads_source<Epilogue>;

// What runs behind the mainloop: CUTLASS's collective, or one derived from it for this epilogue.
template <class Epilogue, class Built>
struct CollectiveEpilogueOf {
  using type = Built;
};

template <class Tile_, class Math, class Epilogue>
struct CollectiveGemmSm90 {
  using Tile = Tile_;
  using Element = typename ElementOf<operand_type<Math>>::type;
  static constexpr bool kSplit = Math::kEngine == Engine::kFp16x3;
  static constexpr bool kSwapped = Tile::kOperands == Operands::kSwapped;
  static constexpr bool kDirect = Tile::kOutput == Output::kDirect;
  static constexpr bool kTma = Tile::kOutput == Output::kTma;
  static constexpr bool kAlongN = Tile::kWeightMajor == Major::kMn;  // swapped operands alone

  // A and B configuration: x (M, K) and weight (N, K), both row-major, or swapped
  using LayoutA =
      std::conditional_t<kAlongN, cutlass::layout::ColumnMajor, cutlass::layout::RowMajor>;
  using LayoutB = cutlass::layout::ColumnMajor;
  static constexpr int kAlignment = 16 / sizeof(Element);  // of every row: what TMA asks for
  // D configuration: y (M, N) row-major, of which swapped operands give the transpose
  using LayoutD =
      std::conditional_t<kSwapped, cutlass::layout::ColumnMajor, cutlass::layout::RowMajor>;
  using ElementD = typename ElementOf<Math::kOut>::type;
  static constexpr int kAlignmentD = 16 / sizeof(ElementD);

  // Kernel configuration
  using TileShape = cute::Shape<cute::Int<Tile::kM>, cute::Int<Tile::kN>,
                                cute::Int<Tile::kBytesK / sizeof(Element)>>;
  using ClusterShape =
      cute::Shape<cute::Int<Tile::kClusterM>, cute::Int<Tile::kClusterN>, cute::_1>;
  using Schedules = SchedulesOf<Tile::kSchedule>;

  // Epilogue: tree(operands), which TMA or the tree's root writes
  static constexpr bool kAhead =
      Tile::kSchedule == ScheduleSm90::kCooperative && has_columns_alone<typename Epilogue::Tree>;
  using Vectors =
      std::conditional_t<kAhead, VectorsAhead<TileShape, kSwapped, typename Epilogue::Tree>,
                         VectorsBehind<TileShape, kSwapped, typename Epilogue::Tree>>;
  using TreeOf = typename Vectors::TreeOf;
  using StoreNode =
      std::conditional_t<kDirect, sm90::Store<ElementD, kSwapped>, sm90::StoreRows<ElementD>>;
  static_assert(kTma || kDirect || kSwapped);
  static constexpr bool kReadsSource = reads_source<Epilogue>;
  static_assert(kTma || !kReadsSource);
  using Visitor = std::conditional_t<kTma, typename TreeOf::type,
                                     sm90::fusion::Sm90EVT<StoreNode, typename TreeOf::type>>;
  // fp32 results take the room of a stage, unless fewer of them wait there to be written. One
  // warpgroup alone has the tile of a pingpong kernel: in four parts of 16-bit results, where
  // CUTLASS takes eight, it waits half as often. On an H200 scale + LeakyReLU of 8192 x 4096
  // took 55.5 us instead of 57.8 at K = 512, 40.7 instead of 45.0 at 256; the product alone no
  // longer either.
  static constexpr bool kWideParts = Tile::kSchedule == ScheduleSm90::kPingpong && kTma &&
                                     sizeof(ElementD) == 2 && Tile::kM % 64 == 0 &&
                                     Tile::kN % 64 == 0;
  using EpilogueTile =
      std::conditional_t<kSplit && !kDirect && Tile::kSchedule == ScheduleSm90::kCooperative,
                         cute::Shape<cute::_128, cute::_16>,
                         std::conditional_t<kWideParts, cute::Shape<cute::_64, cute::_64>,
                                            cutlass::epilogue::collective::EpilogueTileAuto>>;
  using PlainEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      EpilogueTile,  //
      float, float,  // accumulator, epilogue
      std::conditional_t<kReadsSource, ElementD, void>, LayoutD, kAlignmentD,  // C
      std::conditional_t<kTma, ElementD, void>, LayoutD, kAlignmentD,          // D
      typename Schedules::Epilogue, Visitor>::CollectiveOp;

  // Mainloop: as many stages as there is memory left for
  template <class CollectiveEpilogue>
  using MainloopBeside = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,  //
      Element, LayoutA, kAlignment,                         // A
      Element, LayoutB, kAlignment,                         // B
      float, TileShape, ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<int(
          sizeof(typename CollectiveEpilogue::SharedStorage) + Vectors::kBytes)>,
      typename Schedules::Mainloop>::CollectiveOp;

  // Behind operands that are at hand, 33 in eval took 0.2% less time so on an H200.
  static constexpr bool kWritesAtOnce = kAhead && kTma && sizeof(ElementD) == 2;
  // As many parts of a source as take no stage of the operands.
  static constexpr int kFewestLoads = 3, kMostLoads = 8;
  template <class Loads>
  static constexpr int kStagesBeside = MainloopBeside<typename Loads::type>::DispatchPolicy::Stages;
  template <class Plain, int kRoom = kFewestLoads>
  static auto choose_loads() {
    using Loads = WithLoads<kRoom, Plain>;
    if constexpr (kRoom == kMostLoads) {
      return Loads{};
    } else if constexpr (kStagesBeside<WithLoads<kRoom + 1, Plain>> == kStagesBeside<Loads>) {
      return choose_loads<Plain, kRoom + 1>();
    } else {
      return Loads{};
    }
  }
  template <class Plain>
  static auto choose_stores() {
    if constexpr (kReadsSource) {
      return choose_loads<Plain>();
    } else if constexpr (!kWritesAtOnce) {
      return std::enable_if<true, Plain>{};
    } else {
      using Three = WithStores<3, Plain>;
      constexpr bool kFree = MainloopBeside<typename Three::type>::DispatchPolicy::Stages ==
                             MainloopBeside<Plain>::DispatchPolicy::Stages;
      return std::conditional_t<kFree, Three, WithStores<2, Plain>>{};
    }
  }
  using BuiltEpilogue = typename decltype(choose_stores<PlainEpilogue>())::type;
  using CollectiveEpilogue = typename CollectiveEpilogueOf<Epilogue, BuiltEpilogue>::type;
  using TruncatingMainloop = MainloopBeside<CollectiveEpilogue>;

  static constexpr bool kPromotes = kDirect && !kSplit;
  using CollectiveMainloop = typename Vectors::template MainloopOf<std::conditional_t<
      kSplit,
      std::conditional_t<kAlongN, SplitMainloopAlongN<TruncatingMainloop>,
                         SplitMainloop<TruncatingMainloop>>,
      typename std::conditional_t<kPromotes, WithPromotion<TruncatingMainloop>,
                                  std::enable_if<true, TruncatingMainloop>>::type>>;
  static constexpr int kPromotedK = 256;  // between promotions, in whole stages

  using Scheduler =
      std::conditional_t<is_persistent(Tile::kSchedule), cutlass::gemm::PersistentScheduler, void>;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, CollectiveMainloop,
                                           CollectiveEpilogue, Scheduler>;
  using Arguments = typename Kernel::Arguments;
  using Params = typename Kernel::Params;
  static constexpr int kThreads = Kernel::MaxThreadsPerBlock;
  static constexpr int kSharedMemory = Vectors::kBytes + Kernel::SharedStorageSize;

  // All that needs no epilogue. `clusters`: as many as the GPU holds at once.
  static Params make_params(GemmArgs const& gemm, Raster const& raster, Device const& device,
                            int clusters, [[maybe_unused]] Source const& source = {}) {
    Arguments args{};
    args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    args.hw_info.device_id = device.index;
    args.hw_info.sm_count = device.sm_count;
    args.hw_info.max_active_clusters = clusters;
    if constexpr (is_persistent(Tile::kSchedule)) {
      using Order = decltype(args.scheduler.raster_order);
      args.scheduler.max_swizzle_size = raster.count;
      args.scheduler.raster_order =
          raster.direction == Raster::kAlongM ? Order::AlongM : Order::AlongN;
    }
    auto const x = static_cast<Element const*>(gemm.x);
    auto const weight = static_cast<Element const*>(gemm.weight);
    // A matrix of one row has no distance between rows: TMA wants one all the same.
    int const multiplied = int(multiplied_k<Math>(gemm.k));
    int64_t const k = ceil_div(int64_t(multiplied), kAlignment) * kAlignment;
    cutlass::gemm::TagToStrideB_t<LayoutB> const x_stride{gemm.m > 1 ? gemm.ldx : k, {}, {}};
    if constexpr (kAlongN) {
      // Behind the last row of the weight's parts there is no other.
      args.problem_shape = {int(gemm.n), int(gemm.m), kSplit ? multiplied : int(gemm.k), 1};
      args.mainloop.ptr_A = weight;
      cute::get<1>(args.mainloop.dA) = gemm.ldw;
      args.mainloop.ptr_B = x;
      args.mainloop.dB = x_stride;
      if constexpr (kSplit) args.mainloop.depth = gemm.k;
    } else {
      typename Kernel::StrideB const weight_stride{gemm.n > 1 ? gemm.ldw : k, {}, {}};
      if constexpr (kSwapped) {
        args.problem_shape = {int(gemm.n), int(gemm.m), multiplied, 1};
        args.mainloop = {weight, weight_stride, x, x_stride};
      } else {
        args.problem_shape = {int(gemm.m), int(gemm.n), multiplied, 1};
        args.mainloop = {x, x_stride, weight, weight_stride};
      }
    }
    if constexpr (kPromotes) {
      constexpr int kInstructionK = 16;
      args.mainloop.mma_promotion_interval = kPromotedK / kInstructionK;
    }
    if constexpr (kTma) {
      args.epilogue.ptr_D = static_cast<ElementD*>(gemm.y);
      cute::get<kSwapped ? 1 : 0>(args.epilogue.dD) = gemm.ldy;
      if constexpr (kReadsSource) {
        // A kernel that reads none still has a descriptor, which must be a good one.
        bool const is_there = source.data != nullptr;
        args.epilogue.ptr_C = static_cast<ElementD const*>(is_there ? source.data : gemm.y);
        cute::get<kSwapped ? 1 : 0>(args.epilogue.dC) = is_there ? source.ld : gemm.ldy;
      }
    }
    return Kernel::to_underlying_arguments(args, nullptr);
  }

  static void set_epilogue(Params& params, GemmArgs const& gemm,
                           typename Epilogue::Args const& epilogue) {
    if constexpr (kAhead) {
      params.mainloop.operands = Evaluator<typename Epilogue::Tree>::pack(epilogue.operands());
      params.mainloop.columns = int(gemm.n);
    }
    auto const tree = TreeOf::arguments(epilogue.operands());
    using Callbacks = typename CollectiveEpilogue::FusionCallbacks;
    typename Callbacks::Arguments args;
    if constexpr (kDirect) {
      int const pair_bytes = 2 * size_of(gemm.y_type);
      [[maybe_unused]] bool const paired =
          reinterpret_cast<uintptr_t>(gemm.y) % pair_bytes == 0 && gemm.ldy % 2 == 0;
      args = {tree, {gemm.y, gemm.ldy, gemm.y_type, paired}};
    } else if constexpr (kTma) {
      args = tree;
    } else {
      args = {tree, {gemm.y, gemm.ldy}};
    }
    params.epilogue.thread =
        Callbacks::to_underlying_arguments(params.problem_shape, args, nullptr);
  }

  static dim3 cluster(Raster const&) { return dim3(Tile::kClusterM, Tile::kClusterN); }
  static dim3 grid(Params const& params, Raster const&) { return Kernel::get_grid_shape(params); }

  static bool has_descriptors(Params const& params) {
    if constexpr (kTma) {
      if (!is_encoded(params.epilogue.tma_store_d)) return false;
      if constexpr (kReadsSource) {
        if (!is_encoded(params.epilogue.tma_load_c)) return false;
      }
    }
    return is_encoded(params.mainloop.tma_load_a) && is_encoded(params.mainloop.tma_load_b);
  }

  CUTLASS_DEVICE static void run(Params const& params, char* shared_memory) {
    Vectors::init();
    Kernel{}(params, shared_memory + Vectors::kBytes);
  }
};

template <class Tile, class Math, class Epilogue>
struct GemmSm90For {
  using type = std::conditional_t<slices_k(Tile::kSchedule), SplitGemmSm90<Tile, Math, Epilogue>,
                                  CollectiveGemmSm90<Tile, Math, Epilogue>>;
};
template <class Tile, class Math, class Epilogue>
using GemmSm90 = typename GemmSm90For<Tile, Math, Epilogue>::type;

template <class Tile, class Math, class Epilogue>
__global__ void __launch_bounds__(GemmSm90<Tile, Math, Epilogue>::kThreads, 1)
    gemm_sm90(__grid_constant__ typename GemmSm90<Tile, Math, Epilogue>::Params const params) {
#ifdef __CUDA_ARCH__
  static_assert(cutlass::arch::IsGdcGloballyEnabled,
                "CUTLASS was included before gemm/sm90/kernel.hpp");
#endif
  extern __shared__ __align__(1024) char shared_memory[];
  GemmSm90<Tile, Math, Epilogue>::run(params, shared_memory);
}

}  // namespace cutlass_fused
