// A stage of the SM90 kernels of tf32x3 in shared memory. Plain integers.
#pragma once

#include "cutlass_fused/gemm/tf32x3/tiles.hpp"

namespace cutlass_fused::tf32x3_sm90 {

// The numbers of an operand as WGMMA reads TF32: rows along K alone, of 128 bytes. Their pieces of
// 16 bytes are permuted, row by row, which is the swizzle of 128 bytes of PTX.
struct SwizzledRows {
  static constexpr int kK = 32, kBytes = 128, kPieces = 8;

  CUTLASS_FUSED_HOST_DEVICE static int offset(int row, int piece) {
    return row * kBytes + (piece ^ row % kPieces) * 16;
  }
};

// x as it lies along M: columns of K. Eight neighbouring rows at four neighbouring k fill all
// banks.
template <int kRows>
struct SwizzledColumns {
  CUTLASS_FUSED_HOST_DEVICE static int offset(int k, int piece) {
    return k * kRows * 4 + (piece ^ k % 4 * 2) * 16;
  }
};

// x as it is, since it is split in registers; hi and lo of weight.
template <class Tile>
struct StageOf {
  static_assert(Tile::kK == SwizzledRows::kK);
  static constexpr int kBytesX = Tile::kM * SwizzledRows::kBytes;
  static constexpr int kBytesWeight = Tile::kN * SwizzledRows::kBytes;  // of hi, and of lo
  static constexpr int kX = 0, kHigh = kBytesX, kLow = kHigh + kBytesWeight;
  static constexpr int kBytes = kLow + kBytesWeight;
  static_assert(kBytes == Tile::kStageBytes);
};

}  // namespace cutlass_fused::tf32x3_sm90
