// The parts of a weight that lie along N, as TMA brings them and the tensor cores read them: those
// of the rows of its transpose, as split_rows.hpp has them. A product forward splits the rows of a
// weight, and the gradient of x sums along the other side of the same parts.
//
// A row of the parts belongs to one k. In it pieces of 128 bytes lie side by side: of pairs hi,
// then as many lo. In shared memory the same piece of row after row lies side by side, which is
// what an instruction takes as an operand along M or N, swizzled by the width of the piece.
#pragma once

#include "cute/tensor.hpp"
#include "cutlass/cuda_host_adapter.hpp"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

// Of kM rows of the product's weight, and of as much of K as a stage of kBytesK bytes holds.
template <class Element, int kM, int kBytesK, int kStages, bool kPairs>
struct WeightAlongN {
  static constexpr int kParts = kPairs ? 2 : 1;
  static constexpr int kPiece = 128 / sizeof(Element);  // numbers of a swizzle
  static constexpr int kBlocks = kM / kPiece;
  static constexpr int kDepth = kBytesK / int(sizeof(Element)) / kParts;  // of K
  static_assert(sizeof(Element) == 2 && kM % kPiece == 0);
  static_assert(!kPairs || kPiece == SplitLayout::kBlock);

  // (M, K, stages). K goes as in rows that lie along it: of pairs so many hi, then so many lo.
  static constexpr int kGroup = kPairs ? SplitLayout::kBlock : kDepth;
  static_assert(kDepth % kGroup == 0);
  using Plain = cute::Layout<
      cute::Shape<cute::Shape<cute::Int<kPiece>, cute::Int<kBlocks>>,
                  cute::Shape<cute::Int<kGroup>, cute::Int<kParts>, cute::Int<kDepth / kGroup>>,
                  cute::Int<kStages>>,
      cute::Stride<
          cute::Stride<cute::_1, cute::Int<kParts * kDepth * kPiece>>,
          cute::Stride<cute::Int<kPiece>, cute::Int<kDepth * kPiece>, cute::Int<kGroup * kPiece>>,
          cute::Int<kM * kDepth * kParts>>>;
  using SharedLayout =
      cute::ComposedLayout<cute::Swizzle<3, 4, 3>, cute::smem_ptr_flag_bits<16>, Plain>;

  struct Load {
    cute::TmaDescriptor descriptor;
    CUTE_HOST_DEVICE cute::TmaDescriptor const* get_tma_descriptor() const { return &descriptor; }
  };

  // Of `depth` rows, `pitch` numbers apart. A descriptor of zeros: the driver makes none.
  static Load make_load(void const* parts, int64_t depth, int64_t pitch) {
    constexpr int kRank = kPairs ? 4 : 2;
    cuuint64_t const bytes = cuuint64_t(pitch) * sizeof(Element), rows = cuuint64_t(depth);
    cuuint64_t const sizes[4] = {kPairs ? cuuint64_t(kPiece) : cuuint64_t(pitch), rows, kParts,
                                 cuuint64_t(pitch / (kParts * kPiece))};
    cuuint64_t const strides[3] = {bytes, kPiece * sizeof(Element),
                                   kParts * kPiece * sizeof(Element)};
    cuuint32_t const box[4] = {kPiece, kDepth, kParts, kBlocks};
    cuuint32_t const steps[4] = {1, 1, 1, 1};
    Load load{};
    CUresult const result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
        &load.descriptor, CU_TENSOR_MAP_DATA_TYPE_UINT16, kRank, const_cast<void*>(parts), sizes,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? load : Load{};
  }

  // One thread calls it: the weight's rows from kM * tile on, and the stage-th piece of K, to
  // where a stage begins in shared memory.
  CUTLASS_DEVICE static void copy(Load const& load, uint64_t* barrier, uint64_t hint, void* to,
                                  int tile, int stage) {
    if constexpr (kPairs) {
      cute::SM90_TMA_LOAD_4D::copy(&load.descriptor, barrier, hint, to, 0, stage * kDepth, 0,
                                   tile * kBlocks);
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kBlocks; ++i) {
        cute::SM90_TMA_LOAD_2D::copy(&load.descriptor, barrier, hint,
                                     static_cast<Element*>(to) + i * kDepth * kPiece,
                                     tile * kM + i * kPiece, stage * kDepth);
      }
    }
  }

  // The same piece to L2. The descriptor knows the sizes.
  CUTLASS_DEVICE static void prefetch(Load const& load, int, int, int tile, int stage) {
    if constexpr (kPairs) {
      cute::SM90_TMA_LOAD_4D::PREFETCH::copy(&load.descriptor, 0, stage * kDepth, 0,
                                             tile * kBlocks);
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kBlocks; ++i) {
        cute::SM90_TMA_LOAD_2D::PREFETCH::copy(&load.descriptor, tile * kM + i * kPiece,
                                               stage * kDepth);
      }
    }
  }
};

}  // namespace cutlass_fused
