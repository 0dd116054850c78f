// The gradient of a softmax over rows, of every element type.
#include "cutlass_fused/gradients/softmax.cuh"

#include <algorithm>

namespace cutlass_fused {
namespace {

// Blocks lie along x alone, of which there may be 2^31 - 1: more than fit in memory.
template <class T, bool kAligned, class Lanes>
Status launch_short(SoftmaxGradientParams<T> const& params, Device const& device,
                    cudaStream_t stream) {
  using Part = SoftmaxGradientPart<T, kAligned, Lanes::kPieces>;
  int lanes = 1;
  while (lanes < 32 && lanes * Part::kWidth < params.n) lanes *= 2;
  int const rows = Lanes::kThreads / lanes;
  dim3 const grid(unsigned(ceil_div(params.m, int64_t(rows) * Lanes::kRows)));
  KernelLaunch const launch{device, stream, grid, dim3(lanes, rows)};
  return launch(softmax_gradient_short<T, kAligned, Lanes>, params);
}

template <class T, bool kAligned, class Block>
Status launch_long(SoftmaxGradientParams<T> const& params, Device const& device,
                   cudaStream_t stream) {
  // The fewest warps that hold the row, if there are enough.
  constexpr int kPieces = Block::pieces(kAligned), kMostWarps = Block::kThreads / 32;
  constexpr int kPartOfWarp = kPieces * SoftmaxGradientPart<T, kAligned, kPieces>::kStep;
  int const warps = int(std::min(ceil_div(params.n, int64_t(kPartOfWarp)), int64_t(kMostWarps)));
  int const rows = warps > 1 ? 1 : Block::kRows;
  int const parts = int(ceil_div(params.n, int64_t(warps * kPartOfWarp)));
  dim3 const grid(unsigned(ceil_div(params.m, int64_t(rows))));
  KernelLaunch const launch{device, stream, grid, dim3(32 * warps, rows)};
  return launch(softmax_gradient<T, kAligned, Block>, params, parts);
}

template <class T, bool kAligned>
Status launch(SoftmaxGradientParams<T> const& params, Device const& device, cudaStream_t stream) {
  using Block = SoftmaxGradientBlock<false>;
  constexpr int kPieces = Block::pieces(kAligned);
  constexpr int kStep = SoftmaxGradientPart<T, kAligned, kPieces>::kStep;
  if (params.n <= kStep) {
    using Lanes = SoftmaxGradientLanes<kAligned ? 2 : 4, 1>;
    return launch_short<T, kAligned, Lanes>(params, device, stream);
  }
  if constexpr (!kAligned) {
    using Lanes = SoftmaxGradientLanes<2, 4>;
    if (params.n <= Lanes::kPieces * kStep) {
      return launch_short<T, kAligned, Lanes>(params, device, stream);
    }
  }
  // What a block does not hold it reads again, out of L2: of fewer rows at a time more is there.
  return params.n > Block::kThreads / 32 * kPieces * kStep
             ? launch_long<T, kAligned, SoftmaxGradientBlock<true>>(params, device, stream)
             : launch_long<T, kAligned, Block>(params, device, stream);
}

}  // namespace

Status run_softmax_gradient(SoftmaxGradient const& gradient, Device const& device,
                            cudaStream_t stream) {
  DataType const type = gradient.type;
  bool aligned = true;
  for (void const* data :
       {gradient.grad_y, gradient.y, static_cast<void const*>(gradient.grad_v)}) {
    aligned = aligned && has_aligned_rows(data, gradient.n, type);
  }
  return for_type(type, [&](auto of) {
    using T = Storage<of()>;
    SoftmaxGradientParams<T> const params{
        gradient.m, gradient.n, static_cast<T const*>(gradient.grad_y),
        static_cast<T const*>(gradient.y), static_cast<T*>(gradient.grad_v)};
    return aligned ? launch<T, true>(params, device, stream)
                   : launch<T, false>(params, device, stream);
  });
}

}  // namespace cutlass_fused
