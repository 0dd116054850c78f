// A pointwise function that runs as the epilogue of a product, as program/parse.hpp reads it from a
// text such as
//   program 1
//   operands 2
//   v0 = add acc p0
//   v1 = gelu v0
//   v2 = mul v1 p1
//   return v2
// and as program/print.hpp writes it in CUDA C++.
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
};

struct Program {
  int operands = 0;
  std::vector<Line> lines;
  std::vector<Argument> outputs;
};

}  // namespace cutlass_fused::program
