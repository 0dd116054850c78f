// A pointwise function that runs as the epilogue of a product, as program/parse.hpp reads it from a
// text such as
//   program 1
//   operands 2
//   v0 = add acc p0
//   v1 = gelu v0
//   v2 = mul v1 p1
//   return v2
// and as program/print.hpp writes it in CUDA C++.
//
// One that adds or compares along rows says for rows of how many columns it is, and of which groups
// of columns an output has one element each; program/rows/print.hpp writes it:
//   columns 8192
//   v0 = row_sum acc 0x1.0p+13
//   return v0:8192
#pragma once

#include <cstddef>
#include <vector>

#include "cutlass_fused/program/words.hpp"

namespace cutlass_fused::program {

// What a text may hold; the Python package has the same numbers.
constexpr int kVersion = 1;
constexpr size_t kMostBytes = 65536;
constexpr int kMostOperands = 16;
constexpr int kMostLines = 256;
constexpr int kMostOutputs = 8;
constexpr int kMostColumns = 1 << 24;  // all are numbers of fp32

struct Argument {
  enum Kind {
    kAcc,      // acc: the fp32 sum of the product
    kOperand,  // p<index>: an operand's element
    kLine,     // v<index>: the result of an earlier line
    kNumber    // computed with as a float
  };
  Kind kind;
  int index = 0;
  double number = 0;
};

struct Line {
  Word const* word;
  std::vector<Argument> arguments;

  bool is_of_rows() const { return word->printed.empty(); }
  // Of a word of rows: whether its elements differ within a group, by their places.
  bool is_of_places() const { return is_of_rows() && word->result() == 'b'; }
  // Of a word of rows: so many columns, side by side, have one result.
  int width() const { return static_cast<int>(arguments[1].number); }
};

struct Program {
  int operands = 0;
  int columns = 0;  // of each row; 0: any number
  std::vector<Line> lines;
  std::vector<Argument> outputs;
  std::vector<int> widths;  // of each output: columns that have one element, the first of theirs

  bool is_of_rows() const { return columns > 0; }
};

}  // namespace cutlass_fused::program
