// Which batch norms are differentiated by blocks that keep their columns on chip, in one launch and
// one read of both matrices: those of few rows. Plain integers.
#pragma once

#include <utility>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// A block takes all rows of as many columns as `lanes` threads read in pieces of 16 bytes, its
// other threads other rows. Each thread keeps what it reads of both matrices in shared memory.
struct OnChipGradient {
  static constexpr int kThreads = 256, kPieceBytes = 16;
  static constexpr int kWide = 8, kNarrow = 4;

  int lanes = 0;       // 0: columns too long or too few, or rows that do not begin at whole pieces
  int64_t rounds = 0;  // rows of a thread

  static int64_t kept_bytes(int64_t rounds) { return 2 * rounds * kThreads * kPieceBytes; }

  // Of rows of row_bytes, whole 16-byte pieces. `kReserved`: for the sums, and what a block itself
  // takes. A block reads from end to end what no other helps it with: with fewer blocks than the
  // GPU has room for that takes longer than the launches that it saves, unless its rows are few (at
  // 1024 x 512 of bfloat16 on an H200, 16 blocks: 21.7 us beside 17.4; at 1024 x 8192, 256 blocks:
  // 42.4 beside 47.0).
  static OnChipGradient make(int64_t m, int64_t row_bytes, Device const& device) {
    constexpr int64_t kReserved = 18 << 10, kFewRounds = 8;
    for (auto const& [lanes, blocks] : {std::pair{kWide, 2}, std::pair{kNarrow, 1}}) {
      int64_t const rounds = ceil_div(m, int64_t(kThreads / lanes));
      if (blocks * (kept_bytes(rounds) + kReserved) > device.shared_memory) continue;
      int64_t const count = ceil_div(row_bytes, int64_t(lanes * kPieceBytes));
      if (rounds <= kFewRounds || 2 * count >= device.sm_count) return {lanes, rounds};
    }
    return {};
  }
};

}  // namespace cutlass_fused
