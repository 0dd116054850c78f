// GemmSm90 with a tile that slices K: its types, parameters and shared memory. The kernel itself is
// in gemm/sm90_split_k/kernel.hpp.
//
// Few rows of x make a product that is bound by reading the weight. The tile's rows are features
// and its columns rows of x; K is cut into slices, one to each block of a cluster, so that a few
// thousand features occupy every SM. The blocks add up their sums through each other's shared
// memory, always in the same order.
//
// The mainloop's types (TMA descriptors, layouts in shared memory, instructions) are CUTLASS's.
#pragma once

#include <algorithm>

#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/gemm/launch.hpp"
#include "cutlass_fused/gemm/sm90/descriptor.hpp"
#include "cutlass_fused/common/element.hpp"
#include "cutlass_fused/gemm/sm90/tiles.hpp"

namespace cutlass_fused {

template <class Gemm>
struct SplitKernel;

template <class Tile_, class Math, class Epilogue>
struct SplitGemmSm90 {
  using Tile = Tile_;
  using Element = typename ElementOf<operand_type<Math>>::type;
  static constexpr Engine kEngine = Math::kEngine;
  using Operands = Columns<typename Epilogue::Tree>;

  // An instruction has 64 rows. Where a tile has fewer, the others are what happens to lie in
  // shared memory: no row of a product depends on another, and those are not read.
  static constexpr int kComputedRows = std::max(Tile::kM, 64);

  // A: weight (N, K), B: x (M, K), both row-major
  static constexpr int kAlignment = 16 / sizeof(Element);  // of every row: what TMA asks for
  using K = cute::Int<Tile::kBytesK / sizeof(Element)>;    // of a stage
  using TileShape = cute::Shape<cute::Int<kComputedRows>, cute::Int<Tile::kN>, K>;

  // Consumers first, so that warpgroups begin at multiples of four warps; then the producer warp.
  static constexpr int kWarpgroups = kComputedRows / 64;
  static constexpr int kConsumers = 128 * kWarpgroups;
  static constexpr int kThreads = kConsumers + 32;

  // As many stages as there is memory for, beside the operands of the epilogue and the barriers
  static constexpr int kBlocksPerSm = Tile::kSchedule == ScheduleSm90::kSlicesPair ? 2 : 1;
  static constexpr int kSharedMemoryPerSm = 228 * 1024;
  static constexpr int kSharedMemoryOfSystem = 1024;  // for each block
  static constexpr int kOperandBytes = Operands::kRows * Tile::kM * sizeof(float);
  static constexpr int kStages =
      (kSharedMemoryPerSm / kBlocksPerSm - kSharedMemoryOfSystem - kOperandBytes - 1024) /
      ((kComputedRows + Tile::kN) * Tile::kBytesK);
  static_assert(kStages >= 2);
  static constexpr int kLoadedBytes = (Tile::kM + Tile::kN) * Tile::kBytesK;  // of a stage

  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,          //
      Element, cutlass::layout::RowMajor, kAlignment,               // A
      Element, cutlass::layout::ColumnMajor, kAlignment,            // B
      float, TileShape, cute::Shape<cute::_1, cute::_1, cute::_1>,  //
      cutlass::gemm::collective::StageCount<kStages>,
      std::conditional_t<kWarpgroups == 1, cutlass::gemm::KernelTmaWarpSpecialized,
                         cutlass::gemm::KernelTmaWarpSpecializedCooperative>>::CollectiveOp;

  // The tile's rows of weight, (rows, K, stages) in shared memory, and the copies that bring them.
  using LoadedShape = cute::Shape<cute::Int<Tile::kM>, K>;
  using LoadedRows = decltype(cute::composition(
      typename Mainloop::SmemLayoutA{},
      cute::make_tile(cute::Layout<cute::Int<Tile::kM>>{}, cute::Layout<K>{},
                      cute::Layout<cute::Int<kStages>>{})));
  static auto make_weight_load(Element const* weight, int n, int k, int64_t ld) {
    auto const matrix = cute::make_tensor(
        weight, cute::make_layout(cute::make_shape(n, k), cute::make_stride(ld, cute::_1{})));
    return cute::make_tma_copy(cute::SM90_TMA_LOAD{}, matrix,
                               LoadedRows{}(cute::_, cute::_, cute::_0{}), LoadedShape{},
                               cute::_1{});
  }
  using WeightLoad = decltype(make_weight_load(nullptr, 0, 0, 0));

  // The tensor cores' accumulator truncates, which a 16-bit result hides and an fp32 one does not.
  // For one it is added into fp32 registers from time to time; the widest tile has none to spare.
  static constexpr bool kCanPromote = can_promote(Tile::kN);
  static constexpr int kPromotedBytes = 512;  // of K
  static constexpr int kNever = 1 << 30;

  struct Params {
    WeightLoad load_weight;
    typename Mainloop::Params::TMA_B load_x;
    typename Operands::Arguments operands;
    void* y;
    int64_t ldy;
    int m, n, k;           // y is (m, n)
    int promotion_stages;  // between promotions
    DataType y_type;       // Element's or fp32
    bool y_aligned;        // rows of y begin at multiples of 16 bytes
  };

  // Sums are staged as columns of fp32; the distance between two spreads them over the banks.
  static constexpr int kColumn = Tile::kM + 4;
  struct alignas(1024) SharedMemory {
    union {
      typename Mainloop::TensorStorage stages;
      float sums[Tile::kN * kColumn];
    };
    alignas(16) float operands[Operands::kRows * Tile::kM];
    uint64_t full[kStages], empty[kStages];
  };
  static constexpr int kSharedMemory = sizeof(SharedMemory);
  static_assert(kBlocksPerSm * (kSharedMemory + kSharedMemoryOfSystem) <= kSharedMemoryPerSm);

  // All that needs no epilogue.
  static Params make_params(GemmArgs const& gemm, Raster const&, Device const&, int) {
    // A matrix of one row has no distance between rows: TMA wants one all the same.
    int64_t const k = ceil_div(gemm.k, kAlignment) * kAlignment;
    typename Mainloop::Arguments args{};
    args.ptr_A = static_cast<Element const*>(gemm.weight);
    args.ptr_B = static_cast<Element const*>(gemm.x);
    cute::get<0>(args.dA) = gemm.n > 1 ? gemm.ldw : k;
    cute::get<0>(args.dB) = gemm.m > 1 ? gemm.ldx : k;
    auto const shape = cute::make_shape(int(gemm.n), int(gemm.m), int(gemm.k), 1);

    Params params{};
    params.load_weight =
        make_weight_load(args.ptr_A, int(gemm.n), int(gemm.k), cute::get<0>(args.dA));
    params.load_x = Mainloop::to_underlying_arguments(shape, args, nullptr).tma_load_b;
    params.y = gemm.y;
    params.ldy = gemm.ldy;
    params.m = int(gemm.m);
    params.n = int(gemm.n);
    params.k = int(gemm.k);
    bool const promotes = kCanPromote && gemm.y_type == DataType::kFloat32;
    params.promotion_stages = promotes ? std::max(1, kPromotedBytes / Tile::kBytesK) : kNever;
    params.y_type = gemm.y_type;
    params.y_aligned =
        reinterpret_cast<uintptr_t>(gemm.y) % 16 == 0 && gemm.ldy * size_of(gemm.y_type) % 16 == 0;
    return params;
  }

  static void set_epilogue(Params& params, GemmArgs const&,
                           typename Epilogue::Args const& epilogue) {
    params.operands = Evaluator<typename Epilogue::Tree>::pack(epilogue.operands());
  }

  static dim3 cluster(Raster const& raster) { return dim3(raster.count); }
  static dim3 grid(Params const& params, Raster const& raster) {
    return dim3(unsigned(ceil_div(params.n, Tile::kM)) * raster.count,
                unsigned(ceil_div(params.m, Tile::kN)));
  }
  static bool has_descriptors(Params const& params) {
    return is_encoded(params.load_weight) && is_encoded(params.load_x);
  }

  CUTLASS_DEVICE static void run(Params const& params, char* shared_memory) {
    auto& shared = *reinterpret_cast<SharedMemory*>(shared_memory);
    SplitKernel<SplitGemmSm90>{params, shared}.run();
  }
};

}  // namespace cutlass_fused
