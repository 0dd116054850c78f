// How the elements of a program's kernel (program/pointwise.hpp) are dealt out to threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cutlass_fused/program/pointwise.hpp"

namespace cutlass_fused::program {

constexpr int size_of(Type type) { return type == Type::kFloat32 ? 4 : 2; }

// A tensor of which a thread reads or writes pieces: a row, or a tile.
struct Memory {
  Type type;
  uintptr_t address;
  int64_t stride = 0;  // elements from a row to the next; 0: there is one
};

constexpr int kMostPiece = 8;
// Numbers of a thread beyond these do not stay in registers.
constexpr int kMostNumbers = 64;

// The widest word that so many bytes are a multiple of.
constexpr int word_bytes(int bytes) { return std::min(bytes & -bytes, 16); }

// Elements that a thread takes at a time: as many as fill 16 bytes of the narrowest type, where
// rows have a multiple of them, every piece lies on a boundary of its words, and all pieces of a
// thread stay in registers: beside them those of so many `sums`, which begin on any boundary.
// `odd`: a piece has so many times what is returned, which is a power of two.
inline int choose_piece(std::vector<Memory> const& memories, int64_t columns, int sums = 0,
                        int odd = 1) {
  int most = 1;
  for (Memory const& memory : memories) most = std::max(most, 16 / size_of(memory.type));
  most = std::min(most, kMostPiece);
  int const numbers = static_cast<int>(memories.size()) + sums;
  while (most > 1 && (most * odd * numbers > kMostNumbers || most * odd > 2 * kMostPiece)) {
    most /= 2;
  }
  for (int power = most; power > 1; power /= 2) {
    int const piece = power * odd;
    bool fits = columns % piece == 0;
    for (Memory const& memory : memories) {
      auto const word = static_cast<uintptr_t>(word_bytes(piece * size_of(memory.type)));
      auto const step = static_cast<uintptr_t>(memory.stride) * size_of(memory.type);
      fits = fits && memory.address % word == 0 && step % word == 0;
    }
    if (fits) return power;
  }
  return 1;
}

constexpr int kThreads = 256;

struct PointwiseGrid {
  unsigned block_x, block_y, grid_x, grid_y;
};

// Blocks of 256 threads: as many along a row as it has pieces, up to 256, or fewer where many would
// have none; the others below. Down the rows no more blocks than keep all SMs busy a few times
// over: a thread then walks.
inline PointwiseGrid choose_grid(int64_t rows, int64_t pieces, int sm_count) {
  constexpr int64_t kLeast = 32, kMostIdlePercent = 10;
  auto const is_idle = [&](unsigned along) {
    int64_t const threads = (pieces + along - 1) / along * along;
    return threads * 100 > pieces * (100 + kMostIdlePercent);
  };
  unsigned along = 1;
  while (along < kThreads && along < pieces) along *= 2;
  unsigned narrow = along;
  while (narrow > kLeast && is_idle(narrow)) narrow /= 2;
  if (!is_idle(narrow)) along = narrow;
  PointwiseGrid grid{along, kThreads / along, 0, 0};
  grid.grid_x = static_cast<unsigned>((pieces + along - 1) / along);
  constexpr int64_t kBlocksPerSm = 2048 / kThreads, kRounds = 4, kMostGridY = 65535;
  int64_t const enough =
      (int64_t{sm_count} * kBlocksPerSm * kRounds + grid.grid_x - 1) / grid.grid_x;
  int64_t const needed = (rows + grid.block_y - 1) / grid.block_y;
  grid.grid_y = static_cast<unsigned>(std::max<int64_t>(1, std::min({needed, enough, kMostGridY})));
  return grid;
}

// Of a kernel with sums over the rows. A strip is at most a warp, and kStrip columns; where it may
// be one block's, which merges nothing, as many as leave a thread few rows, or kLeastStrip. Else
// its blocks keep all SMs busy once, as each leaves sums in memory: four of them have room on an
// SM, with 64 registers for a thread. Nor has the last block, which merges them in steps of
// kUnderWay, more steps than each has rows for a thread. No thread adds up more than kMostAdded
// rows, for the sake of the sum's last digits.
inline PointwiseGrid choose_sum_grid(int64_t rows, int64_t pieces, int piece, int sm_count,
                                     bool is_light) {
  constexpr int kStrip = 128, kLeastStrip = 16, kWarp = 32;
  constexpr int64_t kBlocksPerSm = 4, kUnderWay = 2, kMostAdded = 512;
  int64_t const rows_alone = is_light ? 8 : 4;
  constexpr int64_t kMostGridY = 65535;
  int const most = std::min(kStrip / piece, kWarp);
  int along = 1;
  while (along < most && along < pieces) along *= 2;
  auto const make_alone = [&](int along) {
    return PointwiseGrid{unsigned(along), unsigned(kThreads / along),
                         static_cast<unsigned>((pieces + along - 1) / along), 1};
  };
  int const least_along = std::max(std::min(kLeastStrip / piece, along), 1);
  for (int narrow = along; narrow >= least_along; narrow /= 2) {
    PointwiseGrid const grid = make_alone(narrow);
    if (rows <= rows_alone * grid.block_y) return grid;
    // With a strip for each SM narrower ones only read less at a time.
    if (!is_light || grid.grid_x >= static_cast<unsigned>(sm_count)) break;
  }
  PointwiseGrid grid = make_alone(along);
  int64_t const needed = (rows + grid.block_y - 1) / grid.block_y;
  int64_t const enough = std::max<int64_t>(1, sm_count * kBlocksPerSm / grid.grid_x);
  auto const merged = static_cast<int64_t>(std::sqrt(double(kUnderWay * rows)));
  int64_t const least = (needed + kMostAdded - 1) / kMostAdded;
  int64_t const blocks = std::max(std::min({needed, enough, merged}), least);
  grid.grid_y = static_cast<unsigned>(std::min(blocks, kMostGridY));
  return grid;
}

// Numbers that the blocks of such a kernel leave: none where each strip has one block.
inline int64_t count_partials(PointwiseGrid const& grid, int piece, int sums) {
  if (grid.grid_y == 1) return 0;
  return int64_t{grid.grid_x} * grid.grid_y * grid.block_x * piece * sums;
}

}  // namespace cutlass_fused::program
