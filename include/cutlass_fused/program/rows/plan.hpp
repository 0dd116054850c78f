// How the elements of a row are dealt out to the threads of a program of rows
// (program/rows/print.hpp).
#pragma once

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "cutlass_fused/program/pointwise_plan.hpp"

namespace cutlass_fused::program {

// acc and then the operands, and the types of the outputs.
struct Rows {
  std::vector<Element> inputs;
  std::vector<Type> outputs;
  int piece;    // elements side by side that a thread takes at a time
  int threads;  // of a row: a power of two
};

constexpr int kWarp = 32;
// What a thread holds in registers of each value, so that several threads hide what each waits for:
// with 32 a softmax of 1024 x 1024 behind a batch norm takes 6.6 us, with 16 4.8 (H200). A row of
// no more than a warp holds is a warp's, or a part of it, which waits for no other. Of a row that
// is too long for kThreadsOfLong a thread holds more, in 128 registers, and beyond kMostUnrolled
// the most threads do, in 64, and in local memory.
constexpr int kItems = 16;
constexpr int kThreadsOfLong = 512;
constexpr int kMostThreads = 1024;
constexpr int kMostUnrolled = 64;

inline int choose_threads(int columns, int piece) {
  int threads = 1;
  int const pieces = columns / piece;
  int const enough =
      columns <= kWarp * kItems ? std::min(pieces, kWarp) : (columns + kItems - 1) / kItems;
  int const most = columns <= kThreadsOfLong * kMostUnrolled ? kThreadsOfLong : kMostThreads;
  while (threads < enough && threads < most) threads *= 2;
  return threads;
}

// Rows of a block. 16384 blocks of 64 threads take 21 us whatever they do (H200): with a row in
// each a sum of 16384 x 768 takes 24 us, with two 21.
inline int rows_of_block(int threads) {
  constexpr int kOfBlock = 128;
  return std::max(1, kOfBlock / threads);
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

// What makes one deal of a row's elements worse than another, the worst first.
struct DealCost {
  int shared;  // lines whose groups are merged through shared memory
  int items;   // that a thread has to hold; a few are no burden
  int loads;   // of a thread, of each tile

  bool operator<(DealCost const& other) const {
    return std::tie(shared, items, loads) < std::tie(other.shared, other.items, other.loads);
  }
};

inline DealCost find_cost(Program const& program, Rows const& rows) {
  DealCost cost{};
  for (Line const& line : program.lines) {
    bool const is_shared =
        line.is_of_rows() && choose_merge(program, rows, line.width()) == Merge::kShared;
    cost.shared += is_shared;
  }
  int const slots = program.columns / rows.piece;
  cost.loads = (slots + rows.threads - 1) / rows.threads;
  cost.items = std::max(cost.loads * rows.piece, kItems / 2);
  return cost;
}

// Whether no group of columns has a part of a piece, nor a piece parts of two groups.
inline bool has_whole_groups(Program const& program, int piece) {
  return std::all_of(program.lines.begin(), program.lines.end(), [&](Line const& line) {
    return !line.is_of_rows() || line.width() % piece == 0 || piece % line.width() == 0;
  });
}

// 1, and the odd factors of the groups' columns: of a piece of three columns a thread has a whole
// group of three, and some threads side by side have one of 192.
inline std::vector<int> list_odd_factors(Program const& program) {
  constexpr int kMostOdd = 7;
  std::vector<int> factors = {1};
  for (Line const& line : program.lines) {
    if (!line.is_of_rows() || line.width() == program.columns) continue;
    int odd = line.width();
    while (odd % 2 == 0) odd /= 2;
    if (odd > 1 && odd <= kMostOdd) factors.push_back(odd);
  }
  return factors;
}

// By the least cost; among equals the longest piece. A piece of fewer than kLeastPiece elements is
// for the sake of alignment, or of whole groups, alone.
inline Rows deal_out(Program const& program, Rows rows, std::vector<Memory> const& memories) {
  constexpr int kLeastPiece = 4;
  bool is_first = true;
  DealCost best{};
  for (int odd : list_odd_factors(program)) {
    int const longest = choose_piece(memories, program.columns, 0, odd);
    bool is_longest = true;
    for (int power = longest; power >= 1; power /= 2) {
      int const piece = odd * power;
      if (program.columns % piece != 0 || !has_whole_groups(program, piece)) continue;
      if (!is_longest && piece < kLeastPiece) break;
      is_longest = false;
      Rows const dealt{rows.inputs, rows.outputs, piece, choose_threads(program.columns, piece)};
      DealCost const cost = find_cost(program, dealt);
      if (!is_first && !(cost < best)) continue;
      is_first = false;
      best = cost;
      rows.piece = piece;
      rows.threads = dealt.threads;
    }
  }
  return rows;
}

// Bytes of shared memory of a block: what a kernel may have without asking, or less.
constexpr int kMostSharedOfRows = 48 * 1024;

inline int find_shared_bytes(Program const& program, Rows const& rows) {
  int most = rows.threads > kWarp ? 2 * kWarp * rows_of_block(rows.threads) : 0;
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
  return deal_out(program, {inputs, outputs, 1, 1}, memories);
}

}  // namespace cutlass_fused::program
