// The CUTLASS 2.x kernel type: GemmSm80<Tile, Math, Epilogue, AlignmentBytes>.
// Included by generated files only.
#pragma once

#include "cutlass_fused/epilogue/visitors/store_sm80.hpp"
#include "cutlass_fused/gemm/launch.hpp"
#include "cutlass_fused/common/element.hpp"
#include "cutlass_fused/gemm/sm80/raster.hpp"
#include "cutlass_fused/gemm/fp16x3/mma_sm80.hpp"
#include "cutlass_fused/gemm/sm80/tiles.hpp"

namespace cutlass_fused {

// What an engine is made of: the tensor-core instruction and the CUTLASS operator that feeds it.
template <Engine>
struct EngineSm80 {
  using Instruction = cutlass::gemm::GemmShape<16, 8, 16>;
  using Operator = cutlass::arch::OpMultiplyAdd;
};

// CUTLASS's kernel of a mainloop and an epilogue.
template <class Mma, class Epilogue, class Raster, class = void>
struct KernelSm80 {
  using type = cutlass::gemm::kernel::GemmWithEpilogueVisitor<Mma, Epilogue, Raster>;
};
template <class Mma, class Epilogue, class Raster>
struct KernelSm80<Mma, Epilogue, Raster, std::void_t<typename Raster::StreamkFeature>> {
  using type = cutlass::gemm::kernel::GemmWithEpilogueVisitorStreamk<Mma, Epilogue, Raster>;
};

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
struct GemmSm80 {
  using Element = typename ElementOf<operand_type<Math>>::type;
  using EngineParts = EngineSm80<Math::kEngine>;
  static constexpr bool kSplit = Math::kEngine == Engine::kFp16x3;

  // A configuration: x, (M, K) row-major
  using LayoutA = cutlass::layout::RowMajor;
  // B configuration: weight, (N, K) row-major, which is (K, N) column-major
  using LayoutB = cutlass::layout::ColumnMajor;
  static constexpr int kAlignment = kAlignmentBytes / sizeof(Element);  // of A and B
  // D configuration: the epilogue hands 16 bytes' worth of operands to a thread at a time
  using LayoutD = cutlass::layout::RowMajor;
  static constexpr int kAccess = 16 / sizeof(Element);

  // Kernel configuration
  static constexpr int kK = Tile::kBytesK / sizeof(Element);
  using BlockShape = cutlass::gemm::GemmShape<Tile::kM, Tile::kN, kK>;
  using WarpShape =
      cutlass::gemm::GemmShape<Tile::kM / Tile::kWarpsM, Tile::kN / Tile::kWarpsN, kK>;
  static constexpr bool kStreamK = Tile::kSchedule == Schedule::kStreamK;
  // Split-K is out of the question here: visitor kernels refuse it by assert only, and under
  // NDEBUG every slice overwrites D. Stream-K reduces before the epilogue.
  using Raster = std::conditional_t<kStreamK, cutlass::gemm::threadblock::ThreadblockSwizzleStreamK,
                                    RasterSm80>;

  // Epilogue: store(tree(operands))
  using ThreadMap = sm80::threadblock::OutputTileThreadLayout<BlockShape, WarpShape, Element,
                                                              kAccess, /*Stages=*/1>;
  using ElementD = typename ElementOf<Math::kOut>::type;  // or fp32, at run time
  using Store = sm80::Store<ThreadMap, ElementD>;
  using TreeOf = sm80::TreeOf<ThreadMap, typename Epilogue::Tree>;
  using Visitor = sm80::threadblock::Sm80EVT<Store, typename TreeOf::type>;

  using Default = typename cutlass::gemm::kernel::DefaultGemmWithVisitor<
      Element, LayoutA, cutlass::ComplexTransform::kNone, kAlignment,     // A
      Element, LayoutB, cutlass::ComplexTransform::kNone, kAlignment,     // B
      Element, LayoutD, kAccess,                                          // D
      float, float,                                                       // accumulator, epilogue
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,                //
      BlockShape, WarpShape, typename EngineParts::Instruction, Visitor,  //
      Raster, Tile::kStages, typename EngineParts::Operator>;
  using PlainMma = typename Default::GemmBase::Mma;
  using Mma = typename std::conditional_t<kSplit, sm80::SplitMmaOf<PlainMma>,
                                          std::enable_if<true, PlainMma>>::type;
  using Kernel = typename KernelSm80<Mma, typename Default::Epilogue, Raster>::type;
  using Params = typename Kernel::Params;

  static constexpr int kThreads = Kernel::kThreadCount;
  static constexpr int kSharedMemory = int(sizeof(typename Kernel::SharedStorage));

  // What plans believe of this tile must be true of the kernel.
  static_assert(kThreads == 32 * Tile::kWarpsM * Tile::kWarpsN);
  static_assert(kSharedMemory <= Tile::kStages * (Tile::kM + Tile::kN) * Tile::kBytesK);

  static Params params(GemmArgs const& gemm, typename Epilogue::Args const& epilogue, int sm_count,
                       int blocks_per_sm) {
    bool const vectorised =
        reinterpret_cast<uintptr_t>(gemm.y) % 16 == 0 && gemm.ldy * size_of(gemm.y_type) % 16 == 0;
    typename Visitor::Arguments const visitor{TreeOf::arguments(epilogue.operands()),
                                              StoreArgs{gemm.y, gemm.ldy, gemm.y_type, vectorised}};
    // The split mainloop counts hi and lo of a number as one.
    int64_t const k = multiplied_k<Math>(gemm.k) / (kSplit ? 2 : 1);
    typename Kernel::Arguments const args(
        cutlass::gemm::GemmUniversalMode::kGemm, {int(gemm.m), int(gemm.n), int(k)},
        /*batch_count=*/1, visitor, gemm.x, gemm.weight, /*C=*/nullptr, /*D=*/nullptr,
        /*batch strides=*/0, 0, 0, 0, gemm.ldx, gemm.ldw, int64_t(0), int64_t(0));
    return Params(args, sm_count, blocks_per_sm);
  }

 private:
  using StoreArgs = sm80::StoreArgs;
};

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
__global__ void __launch_bounds__(GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>::kThreads, 1)
    gemm_sm80(__grid_constant__
              typename GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>::Params const params) {
  using Kernel = typename GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>::Kernel;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Kernel::invoke(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared_memory));
}

}  // namespace cutlass_fused
