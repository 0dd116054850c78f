// How normalize_strips.cuh cuts its work into units: plain integers.
#pragma once

#include "cutlass_fused/norm/strips.hpp"

namespace cutlass_fused {

struct StripBlock {
  static constexpr int kLanes = 32, kRows = 8, kThreads = kLanes * kRows;
  static constexpr int kBlocks = 2;  // on an SM
  // Rows of which a thread waits at once. Behind the product of 16384 x 4096 x 4096 in bf16, with
  // which four SMs share the way to memory, y is there after 746 us; with 8 of three blocks 765.
  static constexpr int kUnroll = 16;
  static constexpr int kChunkRows = 256;
  static constexpr int kMerges = kColumnsOfStrip / kLanes;  // of a strip
};

// The units of a panel: the merges of its strips, then the rows of its first strip, of the second.
struct StripUnits {
  int strips, chunks;  // chunks of rows

  struct Unit {
    int strip, part;  // a chunk, or some columns to be merged
    bool merges;
  };

  static StripUnits make(int64_t rows, int64_t columns) {
    return {int(StripCounters::strips(columns)),
            int(ceil_div(rows, int64_t(StripBlock::kChunkRows)))};
  }
  CUTLASS_FUSED_HOST_DEVICE int of_panel() const {
    return kStripsOfPanel * (StripBlock::kMerges + chunks);
  }
  CUTLASS_FUSED_HOST_DEVICE int count() const {
    return int(ceil_div(strips, kStripsOfPanel)) * of_panel();
  }
  // Some units of the last panel may lie behind the last strip.
  CUTLASS_FUSED_HOST_DEVICE Unit find(int unit) const {
    constexpr int kMerges = kStripsOfPanel * StripBlock::kMerges;
    int const first = unit / of_panel() * kStripsOfPanel, i = unit % of_panel();
    if (i < kMerges) return {first + i / StripBlock::kMerges, i % StripBlock::kMerges, true};
    return {first + (i - kMerges) / chunks, (i - kMerges) % chunks, false};
  }
};

}  // namespace cutlass_fused
