// Which SM80 kernel serves a call: by the alignment of its operands, the forced tile, the
// heuristic.
#pragma once

#include "cutlass_fused/plan/forced_tile.hpp"
#include "cutlass_fused/plan/heuristic.hpp"
#include "cutlass_fused/plan/kernel_choice.hpp"

namespace cutlass_fused {

// The widest of 16, 4, 2 bytes that every row of both operands starts and ends on. The end counts
// too: a load that straddles the end of a row would read the next one.
inline int operand_alignment(GemmArgs const& gemm, int element_bytes) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(gemm.x) | reinterpret_cast<uintptr_t>(gemm.weight) |
                   uintptr_t(gemm.k * element_bytes);
  if (gemm.m > 1) bits |= uintptr_t(gemm.ldx * element_bytes);
  if (gemm.n > 1) bits |= uintptr_t(gemm.ldw * element_bytes);
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
}

// Whether kernels can index the problem: with 32-bit integers, in which K is also rounded up to
// whole stages, on a grid of one dimension. 32 x 64 is the smallest tile, and panels are padded to
// eight tiles.
inline bool fits_kernels(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  return m <= kMax && n <= kMax && k <= kMax - 256 &&
         ceil_div(m, 32) * (ceil_div(n, 64) + 7) <= kMax;
}

template <class Math>
Choice choose_kernel_sm80(GemmArgs const& gemm, Device const& device) {
  using Tiles = typename TilesSm80For<Math>::type;
  if (!fits_kernels(gemm.m, gemm.n, multiplied_k<Math>(gemm.k))) return {KernelKind::kNone, -1, {}};
  if (gemm.k == 0) return {KernelKind::kSimt, -1, {}};

  if constexpr (!splits_rows(Math::kEngine)) {
    int const alignment = operand_alignment(gemm, size_of(Math::kIn));
    if (alignment == 2) return {KernelKind::kNarrow2, -1, {}};
    if (alignment == 4) return {KernelKind::kNarrow4, -1, {}};
  }
  ForcedTile const* const forced = forced_tile.load(std::memory_order_acquire);
  if (forced != nullptr && !forced->any_sm80) {
    for (int i = 0; forced->sm80 != nullptr && i < Tiles::kSize; ++i) {
      if (Tiles::kShapes[i].name() == forced->sm80->name()) return {KernelKind::kAligned, i, {}};
    }
    return {KernelKind::kUnknownTile, -1, {}};
  }
  int const tile = choose_tile<Tiles>(make_problem<Math>(gemm), device);
  return {tile < 0 ? KernelKind::kNone : KernelKind::kAligned, tile, {}};
}

}  // namespace cutlass_fused
