// fp16x3 on tensor cores: three products of each block of K, added up in fp32 registers.
#pragma once

#include "cute/tensor.hpp"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

// sums = a * b over so many stages, of blocks that hold hi, then lo (SplitLayout). lo * lo is too
// small to be seen. wait() returns the index of the next stage that is loaded, release() gives back
// the oldest one that was not.
//
// hi * hi of each block is added in fp32, as the tensor cores' accumulator truncates, while the
// tensor cores work on the other two products. The sum of these is 2^11 times too large, and all
// that it loses by truncation too small to be seen: it stays in its accumulator.
template <class Mma, class A, class B, class Sums, class Wait, class Release>
CUTE_DEVICE void multiply_split(Mma& mma, A const& a, B const& b, Sums& sums, int stages,
                                Wait const& wait, Release const& release) {
  using namespace cute;
  constexpr int kSteps = SplitLayout::kBlock / 16;  // instructions along K
  constexpr int kBlocks = decltype(size<2>(a))::value / (2 * kSteps);
  auto partial = make_fragment_like(sums), cross = make_fragment_like(sums);
  clear(sums);
  // Below the loop runs at least once, and is told from its first run by no condition that the
  // compiler could peel off: it makes the instructions wait for each other where paths meet.
  if (stages <= 0) return;
  clear(cross);
  int pending = -1;  // the stage whose instructions may still run
  CUTE_NO_UNROLL
  for (int stage = 0; stage < stages; ++stage) {
    int const index = wait();
    auto const multiply = [&](int block, int of_a, int of_b, auto& sum) {
      CUTE_UNROLL
      for (int i = block * 2 * kSteps; i < block * 2 * kSteps + kSteps; ++i) {
        cute::gemm(mma, a(_, _, i + of_a * kSteps, index), b(_, _, i + of_b * kSteps, index), sum);
        mma.accumulate_ = GMMA::ScaleOut::One;
      }
    };
    CUTE_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      warpgroup_fence_operand(partial);
      warpgroup_fence_operand(cross);
      warpgroup_arrive();
      mma.accumulate_ = GMMA::ScaleOut::Zero;
      multiply(block, 0, 0, partial);
      warpgroup_commit_batch();
      multiply(block, 0, 1, cross);
      multiply(block, 1, 0, cross);
      warpgroup_commit_batch();
      warpgroup_wait<1>();
      warpgroup_fence_operand(partial);
      CUTE_UNROLL
      for (int i = 0; i < size(sums); ++i) sums(i) += partial(i);
      warpgroup_fence_operand(sums);  // now, while partial is still there
    }
    if (pending >= 0) release();
    pending = index;
  }
  warpgroup_wait<0>();
  warpgroup_fence_operand(cross);
  release();
  CUTE_UNROLL
  for (int i = 0; i < size(sums); ++i) sums(i) += SplitLayout::kLowUnit * cross(i);
}

}  // namespace cutlass_fused
