// How elements are dealt out to threads, of so many random tensors: prints a line of what is wrong
// for each fault, and "<count> of <piece>" for each size of a piece.
#include <iostream>
#include <map>
#include <random>

#include "cutlass_fused/program/pointwise_plan.hpp"

using namespace cutlass_fused::program;

struct Case {
  int64_t rows, columns;
  std::vector<Memory> memories;
  int sm_count, sums;
};

static Case make_case(std::mt19937& random) {
  auto const pick = [&](int from, int to) {
    return from + int(random() % unsigned(to - from + 1));
  };
  Case made{pick(1, 70),
            pick(1, 5) == 1 ? pick(1, 3000) : pick(1, 40) << pick(0, 3),
            {},
            pick(1, 148),
            pick(0, 4)};
  // In half of the cases all lie on boundaries of as many elements.
  int const count = pick(1, 20), unit = pick(0, 1) ? 1 << pick(0, 4) : 1;
  made.columns = (made.columns + unit - 1) / unit * unit;
  for (int i = 0; i < count; ++i) {
    auto const type = static_cast<Type>(pick(0, 2));
    int const kind = pick(0, 3);  // a row, and tiles whose rows touch or do not
    int64_t const stride = kind == 0 ? 0 : made.columns + (kind == 1 ? 0 : unit * pick(0, 17));
    uintptr_t const address = 512 + (pick(0, 1) ? 0 : unit * size_of(type) * pick(0, 16));
    made.memories.push_back({type, address, stride});
  }
  return made;
}

// Of pieces of so many times `odd`.
static char const* find_misplaced(Case const& made, int power, int odd) {
  int const piece = power * odd;
  if (made.columns % piece != 0) return "a row has no whole number of pieces";
  if (power > 1 && piece * (int(made.memories.size()) + made.sums) > kMostNumbers)
    return "too many numbers";
  for (Memory const& memory : made.memories) {
    int word = 1;
    while (word < 16 && piece * size_of(memory.type) % (2 * word) == 0) word *= 2;
    for (int64_t row = 0; row < std::min<int64_t>(made.rows, 5); ++row) {
      for (int64_t column = 0; column < made.columns; column += piece) {
        int64_t const element = row * memory.stride + column;
        if ((memory.address + element * size_of(memory.type)) % word != 0) {
          return "a piece lies on no boundary of its words";
        }
      }
    }
  }
  return nullptr;
}

// As cutlass_fused_pointwise walks.
static char const* find_unseen(Case const& made, int piece, PointwiseGrid const& grid) {
  int64_t const pieces = made.columns / piece;
  if (grid.block_x * grid.block_y != kThreads) return "a block of another size";
  if (grid.grid_y < 1 || grid.grid_y > 65535) return "a grid that cannot be launched";
  std::vector<int> seen(made.rows * pieces);
  for (unsigned x = 0; x < grid.grid_x * grid.block_x; ++x) {
    if (x >= pieces) continue;
    for (unsigned y = 0; y < grid.grid_y * grid.block_y; ++y) {
      for (int64_t row = y; row < made.rows; row += grid.grid_y * grid.block_y) {
        ++seen[row * pieces + x];
      }
    }
  }
  for (int const count : seen) {
    if (count != 1) return "a piece is not written once";
  }
  return nullptr;
}

// Of a kernel with sums over so many rows.
static char const* find_wrong_sums(int64_t rows, int64_t pieces, int piece, int sums,
                                   PointwiseGrid const& grid) {
  if (grid.grid_y < 1 || grid.grid_y > 65535) return "a grid that cannot be launched";
  if ((grid.block_y & (grid.block_y - 1)) != 0) return "lines that have no halves";
  int64_t const lines = int64_t{grid.grid_y} * grid.block_y;
  if ((rows + lines - 1) / lines > 512 && grid.grid_y < 65535) return "a thread of too many rows";
  if (grid.grid_x * grid.block_x < pieces) return "columns that nobody adds up";
  int64_t const left = count_partials(grid, piece, sums);
  if ((left == 0) != (grid.grid_y == 1)) return "nowhere for what blocks leave";
  int64_t const merged = grid.grid_y / grid.block_y, walked = (rows + lines - 1) / lines;
  if (rows < 1 << 24 && merged > 2 * walked) return "too much for the last block";
  return nullptr;
}

// Long and wide ones: no list of all their pieces.
static void check_large(std::mt19937& random) {
  for (int i = 0; i < 10000; ++i) {
    int const piece = 1 << random() % 4, sums = 1 + int(random() % 8);
    int64_t const rows = 1 + int64_t(random() >> random() % 32);
    int64_t const pieces = 1 + int64_t((random() >> random() % 32) / unsigned(piece));
    PointwiseGrid const grid =
        choose_sum_grid(rows, pieces, piece, 1 + int(random() % 148), i % 2 == 0);
    char const* const fault = find_wrong_sums(rows, pieces, piece, sums, grid);
    if (fault != nullptr) std::cout << fault << '\n';
  }
}

// The same with so many times the columns.
static Case widen(Case made, int odd) {
  made.columns *= odd;
  for (Memory& memory : made.memories) memory.stride *= odd;
  return made;
}

int main() {
  std::mt19937 random(1);
  std::map<int, int> counts;
  for (int i = 0; i < 10000; ++i) {
    Case const made = make_case(random);
    int const piece = choose_piece(made.memories, made.columns, made.sums);
    ++counts[piece];
    int64_t const pieces = made.columns / piece;
    char const* fault = find_misplaced(made, piece, 1);
    int const odd = 3 + 2 * (i % 3);
    Case const wide = widen(made, odd);
    if (fault == nullptr) {
      int const power = choose_piece(wide.memories, wide.columns, wide.sums, odd);
      fault = find_misplaced(wide, power, odd);
    }
    if (fault == nullptr) {
      fault = find_unseen(made, piece, choose_grid(made.rows, pieces, made.sm_count));
    }
    if (fault == nullptr) {
      PointwiseGrid const grid =
          choose_sum_grid(made.rows, pieces, piece, made.sm_count, i % 2 == 0);
      fault = find_unseen(made, piece, grid);
      if (fault == nullptr) {
        fault = find_wrong_sums(made.rows, pieces, piece, made.sums + 1, grid);
      }
    }
    if (fault != nullptr) std::cout << fault << '\n';
  }
  check_large(random);
  for (auto const& [piece, count] : counts) std::cout << count << " of " << piece << '\n';
}
