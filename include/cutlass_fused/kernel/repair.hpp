// Which blocks of y a split engine got wrong, noted by its epilogue.
//
// Splitting an infinity gives inf and inf - inf = NaN, so every product with it is NaN, whatever
// fp32 says. Such an accumulator is always NaN and never a wrong number: the epilogue marks the
// block it lies in, and gemm_simt recomputes the NaNs of marked blocks in plain fp32.
#pragma once

#include "cutlass_fused/types.hpp"

namespace cutlass_fused {

struct RepairFlags {
  static constexpr int kBlock = 64;  // rows and columns of y per flag

  uint8_t* flags = nullptr;
  int blocks_n = 0;

  static size_t bytes(int64_t m, int64_t n) {
    return size_t((m + kBlock - 1) / kBlock) * size_t((n + kBlock - 1) / kBlock);
  }

  // Every writer writes the same value, so the race between them is harmless.
  CUTLASS_FUSED_HOST_DEVICE void mark(int m, int n) const {
    flags[int64_t(m / kBlock) * blocks_n + n / kBlock] = 1;
  }
};

}  // namespace cutlass_fused
