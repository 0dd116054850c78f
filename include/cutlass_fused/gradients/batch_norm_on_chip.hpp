// Which batch norms are differentiated by blocks that keep their columns on chip, in one launch and
// one read of both matrices: those of few rows. Plain integers.
#pragma once

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Some blocks together take all rows of as many columns as `lanes` threads read in pieces of 16
// bytes, each a range of rows, each line of its threads other rows. Each thread keeps what it reads
// of both matrices: the last few rows in registers, the others in shared memory.
struct OnChipGradient {
  static constexpr int kThreads = 256, kPieceBytes = 16;
  static constexpr int kUnderWay = 6;  // rows of a thread that are asked for at a time
  static constexpr int kWide = 8, kNarrow = 4;
  static constexpr int kBlocksPerSm = 2;  // at most, by registers

  int lanes = 0;     // 0: columns too long, or rows that do not begin at whole pieces
  int blocks = 1;    // that take the same columns: more than one are a cluster
  int64_t rows = 0;  // of a block

  int64_t rounds() const { return ceil_div(rows, int64_t(kThreads / lanes)); }
  int64_t kept_bytes() const {
    return 2 * (ceil_div(rounds(), int64_t(kUnderWay)) - 1) * kUnderWay * kThreads * kPieceBytes;
  }

  // At a time, on an SM. `kReserved`: for the sums, and what a block itself takes.
  int64_t blocks_per_sm(Device const& device) const {
    constexpr int64_t kReserved = 7 << 10, kOfSystem = 1 << 10;
    int64_t const count = (device.shared_memory + kOfSystem) / (kept_bytes() + kReserved);
    return count < kBlocksPerSm ? count : kBlocksPerSm;
  }

  // The bytes that the busiest SM moves, and what a block takes beside that: `kBlock` and `kMeet`
  // are those of norm/on_chip/plan.hpp, which were fitted to an H200's times and count a read and a
  // write as one. Clusters of four and more blocks do not fill a GPU's parts.
  double cost(int64_t row_bytes, Device const& device) const {
    constexpr double kBlock = 2 * 22 << 10, kMeet = 2 * 2 << 10, kNarrower = 1.1;
    int const idle = blocks < 4 ? 0 : blocks < 8 ? 8 : 12;
    int const sms = device.sm_count > 2 * idle ? device.sm_count - idle : device.sm_count;
    int64_t const count = ceil_div(row_bytes, int64_t(lanes * kPieceBytes)) * blocks;
    double per_sm = double(count) / sms;
    if (per_sm < 2) per_sm = double(ceil_div(count, int64_t(sms)));
    double const moved = 3.0 * double(rows) * lanes * kPieceBytes;  // two are read, one is written
    return per_sm * ((lanes == kNarrow ? kNarrower : 1.0) * moved + kBlock + kMeet * blocks);
  }

  // Of rows of row_bytes, whole 16-byte pieces. A block that has an SM to itself leaves the memory
  // without work while it adds up. Where there are no clusters it may, but for few blocks: a block
  // reads from end to end what no other helps it with, and with fewer blocks than the GPU has room
  // for that takes longer than the launches that it saves, unless its rows are few (at 1024 x 512
  // of bfloat16 on an H200, 16 blocks: 21.7 us beside 17.4).
  static OnChipGradient make(int64_t m, int64_t row_bytes, Device const& device) {
    constexpr int64_t kFewRounds = 8;
    bool const has_clusters = device.code >= 90;
    OnChipGradient best;
    double least = 0;
    for (int const lanes : {kWide, kNarrow}) {
      for (int blocks = 1; blocks <= (has_clusters ? 8 : 1); blocks *= 2) {
        OnChipGradient const plan{lanes, blocks, ceil_div(m, int64_t(blocks))};
        int64_t const groups = ceil_div(row_bytes, int64_t(lanes * kPieceBytes));
        bool const serves =
            has_clusters ? plan.blocks_per_sm(device) > 1
                         : plan.blocks_per_sm(device) > 0 &&
                               (plan.rounds() <= kFewRounds || 2 * groups >= device.sm_count);
        if (!serves) continue;
        double const cost = plan.cost(row_bytes, device);
        if (best.lanes == 0 || cost < least) {
          least = cost;
          best = plan;
        }
      }
    }
    return best;
  }
};

}  // namespace cutlass_fused
