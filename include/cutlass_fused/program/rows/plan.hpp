// How the elements of a row are dealt out to the threads of a program of rows
// (program/rows/print.hpp).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cutlass_fused/program/pointwise_plan.hpp"

namespace cutlass_fused::program {

// acc and then the operands, and the types of the outputs.
struct Rows {
  std::vector<Element> inputs;
  std::vector<Type> outputs;
  int piece;    // elements side by side that a thread takes at a time: a power of two
  int threads;  // of a row: a power of two
};

constexpr int kWarp = 32;
// A row of at most so many columns is a warp's, or a part of it, which waits for no other.
constexpr int kMostOfWarp = 1024;
// What a thread holds in registers of each value, so that several threads hide what each waits for.
// Of a longer row it holds more, in 128 registers, and beyond kMostUnrolled the most threads do, in
// 64, and in local memory.
constexpr int kItems = 16;
constexpr int kThreadsOfLong = 512;
constexpr int kMostThreads = 1024;
constexpr int kMostUnrolled = 64;

inline int choose_threads(int columns, int piece) {
  int threads = 1;
  int const pieces = columns / piece;
  int const enough = columns <= kMostOfWarp ? std::min(pieces, kWarp) : columns / kItems;
  int const most = columns <= kThreadsOfLong * kMostUnrolled ? kThreadsOfLong : kMostThreads;
  while (threads < enough && threads < most) threads *= 2;
  return threads;
}

// Rows of a block: four warps have no fewer.
inline int rows_of_block(int threads) {
  constexpr int kOfBlock = 128;
  return threads <= kWarp ? kOfBlock / threads : 1;
}

// As choose_piece, and no group of columns has a part of a piece, nor a piece parts of two groups.
inline int choose_row_piece(std::vector<Memory> const& memories, Program const& program) {
  int piece = choose_piece(memories, program.columns);
  auto const fits = [&](Line const& line) {
    return !line.is_of_rows() || line.width() % piece == 0 || piece % line.width() == 0;
  };
  while (!std::all_of(program.lines.begin(), program.lines.end(), fits)) piece /= 2;
  return piece;
}

// By whom the groups of a line are merged.
enum class Merge {
  kRow,      // all threads of the row
  kInPiece,  // a piece has whole groups
  kLanes,    // lanes side by side
  kShared    // through shared memory
};

inline Merge choose_merge(Program const& program, Rows const& rows, int width) {
  if (width == program.columns) return Merge::kRow;
  if (rows.piece % width == 0) return Merge::kInPiece;
  int const lanes = width / rows.piece;
  bool const is_power = (lanes & (lanes - 1)) == 0;
  return is_power && lanes <= std::min(rows.threads, kWarp) ? Merge::kLanes : Merge::kShared;
}

// Bytes of shared memory of a block: what a kernel may have without asking, or less.
constexpr int kMostSharedOfRows = 48 * 1024;

inline int find_shared_bytes(Program const& program, Rows const& rows) {
  int most = rows.threads > kWarp ? 2 * kWarp : 0;
  for (Line const& line : program.lines) {
    if (!line.is_of_rows()) continue;
    int const width = line.width();
    if (choose_merge(program, rows, width) != Merge::kShared) continue;
    int const slots = program.columns / rows.piece, groups = program.columns / width;
    most = std::max(most, (slots + groups) * rows_of_block(rows.threads));
  }
  return most * static_cast<int>(sizeof(float));
}

// Why there is no such kernel; empty: there is.
inline std::string refuse_rows(Program const& program, Rows const& rows) {
  int const bytes = find_shared_bytes(program, rows);
  if (bytes <= kMostSharedOfRows) return "";
  return "groups of columns that no warp has side by side must take at most " +
         std::to_string(kMostSharedOfRows) + " bytes of shared memory, got " +
         std::to_string(bytes);
}

// `memories`: of rows and tiles, as choose_piece has them.
inline Rows make_rows(Program const& program, std::vector<Element> const& inputs,
                      std::vector<Type> const& outputs, std::vector<Memory> const& memories) {
  int const piece = choose_row_piece(memories, program);
  return {inputs, outputs, piece, choose_threads(program.columns, piece)};
}

}  // namespace cutlass_fused::program
