// The split of a matrix that lies along M or N: split_rows.hpp, without a copy of it along K.
#pragma once

#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

// A block takes a tile at a time: so many rows, which lie side by side, and so much of K. Of each k
// it reads 128 bytes, and of each row it writes four times that: memory likes long writes.
struct SplitTile {
  static constexpr int kRows = 32, kDepth = 128;
  // Up to here, one block splits its rows alone, and reads them once: they are one tile.
  static constexpr int64_t kShort = kDepth;
  static constexpr unsigned kPanels = 8;  // side by side, that are split at the same time
};

// What the blocks tell each other of a matrix whose K they share out. It begins as zeros, and so do
// the scales of the matrix.
struct ColumnsWorkspace {
  unsigned* ticket;    // one: how many tiles were taken
  unsigned* measured;  // of each kRows rows: how often a warp has joined their largest numbers
  unsigned* largest;   // of each row
  uint64_t* lost;      // of each row

  // The words of 4 bytes.
  static int64_t words(SplitLayout const& layout) {
    if (layout.k <= SplitTile::kShort) return 0;
    return 3 * rows(layout) + kTicketWords + panels(layout);
  }
  static ColumnsWorkspace make(SplitLayout const& layout, void* memory) {
    auto* const lost = static_cast<uint64_t*>(memory);
    auto* const largest = reinterpret_cast<unsigned*>(lost + rows(layout));
    unsigned* const ticket = largest + rows(layout);
    return {ticket, ticket + kTicketWords, largest, lost};
  }

 private:
  static constexpr int64_t kTicketWords = 32;  // a cache line of its own

  static int64_t panels(SplitLayout const& layout) {
    return ceil_div(layout.rows, int64_t(SplitTile::kRows));
  }
  static int64_t rows(SplitLayout const& layout) { return panels(layout) * SplitTile::kRows; }
};

// Row r of the matrix begins at from + r, and its numbers are ld apart. Writes what run_split_rows
// writes of the same rows. `workspace` has ColumnsWorkspace::words words, aligned to 8 bytes.
// `is_clear`: run_split_rows has cleared it, and the scales, before; else a launch of its own does.
Status run_split_columns(SplitLayout const& layout, float const* from, int64_t ld, void* to,
                         RowScale const* folded, void* workspace, bool is_clear,
                         Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
