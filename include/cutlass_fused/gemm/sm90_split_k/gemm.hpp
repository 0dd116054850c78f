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
#include "cutlass_fused/gemm/fp16x3_sm90/weight_along_n.hpp"
#include "cutlass_fused/gemm/sm90/descriptor.hpp"
#include "cutlass_fused/common/element.hpp"
#include "cutlass_fused/gemm/sm90/tiles.hpp"
#include "cutlass_fused/gemm/sm90_split_k/weight_along_k.hpp"

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

  // A: weight (N, K), B: x (M, K), both row-major, but for parts of a weight that lie along N
  static constexpr bool kAlongN = Tile::kWeightMajor == Major::kMn;
  using LayoutA =
      std::conditional_t<kAlongN, cutlass::layout::ColumnMajor, cutlass::layout::RowMajor>;
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
      Element, LayoutA, kAlignment,                                 // A
      Element, cutlass::layout::ColumnMajor, kAlignment,            // B
      float, TileShape, cute::Shape<cute::_1, cute::_1, cute::_1>,  //
      cutlass::gemm::collective::StageCount<kStages>,
      std::conditional_t<kWarpgroups == 1, cutlass::gemm::KernelTmaWarpSpecialized,
                         cutlass::gemm::KernelTmaWarpSpecializedCooperative>>::CollectiveOp;

  // How the tile's rows of weight come, and lie in shared memory.
  using Weight = std::conditional_t<
      kAlongN,
      WeightAlongN<Element, kComputedRows, Tile::kBytesK, kStages, kEngine == Engine::kFp16x3>,
      WeightAlongK<Element, Tile::kM, typename Mainloop::SmemLayoutA>>;
  static_assert(!kAlongN || Tile::kM == kComputedRows);
  using SharedWeight = typename Weight::SharedLayout;
  static_assert(cute::cosize_v<SharedWeight> == cute::cosize_v<typename Mainloop::SmemLayoutA>);
  using WeightLoad = typename Weight::Load;

  // The tensor cores' accumulator truncates, which a 16-bit result hides and an fp32 one does not.
  // For one it is added into fp32 registers from time to time; the widest tile has none to spare.
  static constexpr bool kCanPromote = can_promote(Tile::kN);
  static constexpr int kPromotedBytes = 512;  // of K
  static constexpr int kNever = 1 << 30;

  using XLoad = typename Mainloop::Params::TMA_B;
  static XLoad make_x_load(Element const* x, int m, int k, int64_t ld) {
    using Raw = typename Mainloop::InternalElementB;
    auto const matrix = cute::make_tensor(
        reinterpret_cast<Raw const*>(x),
        cute::make_layout(cute::make_shape(m, k, 1), typename Mainloop::StrideB{ld, {}, {}}));
    return cute::make_tma_copy_B_sm90(
        cute::SM90_TMA_LOAD{}, matrix,
        typename Mainloop::SmemLayoutB{}(cute::_, cute::_, cute::_0{}), TileShape{},
        cute::Shape<cute::_1, cute::_1, cute::_1>{});
  }

  struct Params {
    WeightLoad load_weight;
    XLoad load_x;
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
  static Params make_params(GemmArgs const& gemm, Raster const&, Device const&, int,
                            Source const& = {}) {
    // A matrix of one row has no distance between rows: TMA wants one all the same.
    int64_t const multiplied = multiplied_k<Math>(gemm.k);
    int64_t const k = ceil_div(multiplied, kAlignment) * kAlignment;
    Params params{};
    if constexpr (kAlongN) {
      params.load_weight = Weight::make_load(gemm.weight, gemm.k, gemm.ldw);
    } else {
      params.load_weight = Weight::make_load(static_cast<Element const*>(gemm.weight), int(gemm.n),
                                             int(multiplied), gemm.n > 1 ? gemm.ldw : k);
    }
    params.load_x = make_x_load(static_cast<Element const*>(gemm.x), int(gemm.m), int(multiplied),
                                gemm.m > 1 ? gemm.ldx : k);
    params.y = gemm.y;
    params.ldy = gemm.ldy;
    params.m = int(gemm.m);
    params.n = int(gemm.n);
    params.k = int(multiplied);
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
