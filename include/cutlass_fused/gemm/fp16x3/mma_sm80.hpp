// The mainloop of fp16x3 in CUTLASS 2.x: two runs of a multistage mainloop over rows in
// SplitLayout, of which each tile of K is hi or lo of one block.
#pragma once

#include "cutlass/arch/mma.h"  // which the next one lacks

#include "cutlass/gemm/threadblock/mma_multistage.h"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused::sm80 {

// A warp's product whose sums over a tile of K are added in fp32: the tensor cores' accumulator
// truncates.
template <class Warp>
struct StagedWarpMma : Warp {
  using Warp::Warp;
};

}  // namespace cutlass_fused::sm80

namespace cutlass::arch::detail {

template <class Warp>
struct UseStagedAccumulation<cutlass_fused::sm80::StagedWarpMma<Warp>> {
  static bool const value = true;
};

}  // namespace cutlass::arch::detail

namespace cutlass_fused::sm80 {

// Which tiles of K a run reads, in their order: hi and lo are neighbours.
enum class SplitOrder { kHighLow, kLowHigh, kHigh };

// kAlongColumns: K lies along the matrix's columns, as in x, else along its rows.
template <class Base, SplitOrder kOrder, bool kAlongColumns>
struct SplitTiles : Base {
  using typename Base::TensorCoord;

  CUTLASS_DEVICE explicit SplitTiles(Base const& base) : Base(base) {
    if (kOrder == SplitOrder::kLowHigh) move(1);
  }

  // To the next tile, whatever the distance.
  CUTLASS_DEVICE void add_tile_offset(TensorCoord const&) {
    switch (kOrder) {
      case SplitOrder::kHighLow:
        return move(1);
      case SplitOrder::kHigh:
        return move(2);
      case SplitOrder::kLowHigh:
        move(at_high ? 3 : -1);
        at_high = !at_high;
    }
  }

 private:
  CUTLASS_DEVICE void move(int tiles) {
    Base::add_tile_offset(kAlongColumns ? TensorCoord(0, tiles) : TensorCoord(tiles, 0));
  }

  bool at_high = false;
};

// What the kernel makes of its operands: K counted in blocks of which both parts lie in memory.
template <class Base, bool kAlongColumns>
struct SplitIterator : Base {
  using typename Base::Params;
  using typename Base::Pointer;
  using typename Base::TensorCoord;

  CUTLASS_DEVICE SplitIterator(Params const& params, Pointer pointer, TensorCoord extent,
                               int thread, TensorCoord const& offset, int const* indices = nullptr)
      : Base(params, pointer, both(extent), thread, both(offset), indices) {}

  template <SplitOrder kOrder>
  CUTLASS_DEVICE auto tiles() const {
    return SplitTiles<Base, kOrder, kAlongColumns>(*this);
  }

 private:
  CUTLASS_DEVICE static TensorCoord both(TensorCoord const& at) {
    return kAlongColumns ? TensorCoord(at.row(), 2 * at.column())
                         : TensorCoord(2 * at.row(), at.column());
  }
};

template <class Mma>
struct SplitMma;
template <class Shape, class A, class SmemA, cutlass::arch::CacheOperation::Kind kCacheA, class B,
          class SmemB, cutlass::arch::CacheOperation::Kind kCacheB, class C, class LayoutC,
          class Policy, int kStages, cutlass::gemm::SharedMemoryClearOption kClear>
struct SplitMma<cutlass::gemm::threadblock::MmaMultistage<
    Shape, A, SmemA, kCacheA, B, SmemB, kCacheB, C, LayoutC, Policy, kStages, kClear>>
    : cutlass::gemm::threadblock::MmaBase<Shape, Policy, kStages> {
  using Base = cutlass::gemm::threadblock::MmaBase<Shape, Policy, kStages>;
  static_assert(Shape::kK == SplitLayout::kBlock);

  template <SplitOrder kOrderA, SplitOrder kOrderB, class OfPolicy>
  using Run =
      cutlass::gemm::threadblock::MmaMultistage<Shape, SplitTiles<A, kOrderA, true>, SmemA, kCacheA,
                                                SplitTiles<B, kOrderB, false>, SmemB, kCacheB, C,
                                                LayoutC, OfPolicy, kStages, kClear>;
  using StagedPolicy =
      cutlass::gemm::threadblock::MmaPolicy<StagedWarpMma<typename Policy::Operator>,
                                            typename Policy::SmemPaddingA,
                                            typename Policy::SmemPaddingB, Policy::kPartitionsK>;
  using Cross = Run<SplitOrder::kLowHigh, SplitOrder::kHighLow, Policy>;
  using High = Run<SplitOrder::kHigh, SplitOrder::kHigh, StagedPolicy>;

  using IteratorA = SplitIterator<A, true>;
  using IteratorB = SplitIterator<B, false>;
  using ElementC = C;
  using Operator = typename Policy::Operator;
  using FragmentC = typename Operator::FragmentC;
  using ArchTag = cutlass::arch::Sm80;
  static constexpr cutlass::ComplexTransform kTransformA = Operator::kTransformA;
  static constexpr cutlass::ComplexTransform kTransformB = Operator::kTransformB;
  static constexpr auto kCacheOpA = kCacheA;
  static constexpr auto kCacheOpB = kCacheB;

  typename Base::SharedStorage& shared;
  int thread, warp, lane;

  CUTLASS_DEVICE SplitMma(typename Base::SharedStorage& shared, int thread, int warp, int lane)
      : Base(shared, thread, warp, lane), shared(shared), thread(thread), warp(warp), lane(lane) {}

  // The small products first: 2^11 times too large, in sums of their own.
  CUTLASS_DEVICE void operator()(int blocks, FragmentC& sums, IteratorA a, IteratorB b,
                                 FragmentC const& zero) {
    Cross cross(storage<Cross>(), thread, warp, lane);
    cross(2 * blocks, sums, a.template tiles<SplitOrder::kLowHigh>(),
          b.template tiles<SplitOrder::kHighLow>(), zero);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < FragmentC::kElements; ++i) sums[i] *= SplitLayout::kLowUnit;
    High high(storage<High>(), thread, warp, lane);
    high(blocks, sums, a.template tiles<SplitOrder::kHigh>(), b.template tiles<SplitOrder::kHigh>(),
         sums);
  }

 private:
  // The policies' storages are of different types and of one layout.
  template <class Other>
  CUTLASS_DEVICE typename Other::Base::SharedStorage& storage() const {
    using Storage = typename Other::Base::SharedStorage;
    static_assert(sizeof(Storage) == sizeof(shared));
    return reinterpret_cast<Storage&>(shared);
  }
};

// `type`: the split mainloop, of the tiles of CUTLASS's.
template <class Mma>
struct SplitMmaOf {
  using type = SplitMma<Mma>;
};

}  // namespace cutlass_fused::sm80
