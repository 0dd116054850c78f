// How exactly the functions of a program are computed.
#pragma once

#include <iterator>
#include <string_view>
#include <vector>

#include "cutlass_fused/program/program.hpp"

namespace cutlass_fused::program {

enum class Type { kFloat32, kFloat16, kBFloat16 };

enum class Arithmetic {
  kAsPyTorch,  // of PyTorch's fp32 kernels: program/words.hpp
  kFor16Bits   // without a branch, to 2^-14 of each result: program/prelude_16.hpp
};

// All that is computed must be rounded to 16 bits: acc or an operand, which is handed out as it is,
// has no arithmetic. `outputs`: the types of the results.
inline Arithmetic choose_arithmetic(Program const& program, std::vector<Type> const& outputs) {
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    bool const is_computed = program.outputs[i].kind == Argument::kLine;
    if (is_computed && outputs[i] == Type::kFloat32) return Arithmetic::kAsPyTorch;
  }
  return Arithmetic::kFor16Bits;
}

inline bool is_any_of(std::string_view name, std::string_view const* first, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (first[i] == name) return true;
  }
  return false;
}

// Words that jump: floor(6 / 3) is 1 where the quotient is the least bit below 2.
inline bool has_steps(Word const& word) {
  constexpr std::string_view kNames[] = {"floor", "ceil",      "round",     "trunc", "sign",
                                         "fmod",  "remainder", "threshold", "eq",    "ne",
                                         "lt",    "le",        "gt",        "ge"};
  return is_any_of(word.name, kNames, std::size(kNames));
}

// Words that have an end or a pole: sqrt(1 - x / x) is NaN where the quotient is the least bit
// above 1.
inline bool has_edges(Word const& word) {
  constexpr std::string_view kNames[] = {"sqrt",  "rsqrt", "reciprocal", "log",  "log2",
                                         "log10", "log1p", "asin",       "acos", "acosh",
                                         "atanh", "div",   "pow"};
  return is_any_of(word.name, kNames, std::size(kNames));
}

// Words whose results are whole numbers, or ones, where people count on it.
inline bool is_rounded(Word const& word) {
  constexpr std::string_view kNames[] = {"div", "reciprocal", "sqrt", "pow"};
  return is_any_of(word.name, kNames, std::size(kNames));
}

// Of each line, whether it is computed as PyTorch does in any case: a word with steps comes of it,
// or, of a quotient, one with edges.
inline std::vector<bool> find_exact_lines(Program const& program) {
  size_t const count = program.lines.size();
  std::vector<bool> steps(count), edges(count), exact(count);
  for (size_t i = count; i-- > 0;) {
    Word const& word = *program.lines[i].word;
    exact[i] = steps[i] || (edges[i] && is_rounded(word));
    for (Argument const& argument : program.lines[i].arguments) {
      if (argument.kind != Argument::kLine) continue;
      size_t const from = static_cast<size_t>(argument.index);
      steps[from] = steps[from] || steps[i] || has_steps(word);
      edges[from] = edges[from] || edges[i] || has_edges(word);
    }
  }
  return exact;
}

}  // namespace cutlass_fused::program
