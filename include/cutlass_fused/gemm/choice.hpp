// Which SM80 kernel serves a call: by the alignment of its operands, the forced tile, the
// heuristic.
#pragma once

#include "cutlass_fused/gemm/forced_tile.hpp"
#include "cutlass_fused/gemm/heuristic.hpp"
#include "cutlass_fused/gemm/kernel_choice.hpp"

namespace cutlass_fused {

// K up to which a product of fp32 tensors runs on CUDA cores. "ieee": up to 32 plain fp32 has the
// smaller error, from 36 on tf32x3 has. "tf32": an outer product is bound by memory, and cuBLAS
// computes it in fp32 too.
constexpr int64_t max_simt_k(Engine engine) {
  return engine == Engine::kTf32x3 ? 32 : engine == Engine::kTf32 ? 1 : 0;
}

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
  if (!fits_kernels(gemm.m, gemm.n, gemm.k)) return {KernelKind::kNone, -1, {}};
  if (gemm.k <= max_simt_k(Math::kEngine)) return {KernelKind::kSimt, -1, {}};

  int const element_bytes = size_of(Math::kIn);
  switch (operand_alignment(gemm, element_bytes)) {
    case 2:
      return {element_bytes == 2 ? KernelKind::kNarrow2 : KernelKind::kNone, -1, {}};
    case 4:
      return {KernelKind::kNarrow4, -1, {}};
    default:
      break;
  }
  if (ForcedTile const* forced = forced_tile.load(std::memory_order_acquire)) {
    for (int i = 0; forced->sm80 != nullptr && i < Tiles::kSize; ++i) {
      if (Tiles::kShapes[i].name() == forced->sm80->name()) return {KernelKind::kAligned, i, {}};
    }
    return {KernelKind::kUnknownTile, -1, {}};
  }
  Problem const problem{gemm.m, gemm.n, gemm.k, element_bytes, Math::kEngine};
  int const tile = choose_tile<Tiles>(problem, device);
  return {tile < 0 ? KernelKind::kNone : KernelKind::kAligned, tile, {}};
}

}  // namespace cutlass_fused
