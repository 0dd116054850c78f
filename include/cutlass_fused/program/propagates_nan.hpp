// Whether the first output of a program is NaN wherever acc is. A product of split rows hands NaN
// to its epilogue where digits were lost, and what repairs it looks for NaN in y: a program that
// makes a number of it would hide what was lost.
#pragma once

#include <string_view>
#include <vector>

#include "cutlass_fused/program/program.hpp"

namespace cutlass_fused::program {

// Whether a word's result is NaN, given of each argument whether it is; others may be any number.
inline bool gives_nan(Line const& line, std::vector<bool> const& is_nan) {
  Word const& word = *line.word;
  if (word.result() == 'b' || word.name == "sign" || word.name == "float") return false;
  if (word.name == "where") return is_nan[1] && is_nan[2];
  // x, where it is above 0, whatever the slope is.
  if (word.name == "prelu") return is_nan[0];
  if (word.name == "pow") {
    // x^0 and 1^x are 1.
    Argument const& exponent = line.arguments[1];
    bool const is_other =
        exponent.kind == Argument::kNumber && static_cast<float>(exponent.number) != 0;
    return is_nan[0] && (is_nan[1] || is_other);
  }
  for (bool const each : is_nan) {
    if (each) return true;
  }
  return false;
}

inline bool propagates_nan(Program const& program) {
  std::vector<bool> lines;
  auto const is_nan = [&](Argument const& argument) {
    switch (argument.kind) {
      case Argument::kAcc:
        return true;
      case Argument::kLine:
        return bool(lines[static_cast<size_t>(argument.index)]);
      case Argument::kOperand:
      case Argument::kNumber:
        break;
    }
    return false;
  };
  for (Line const& line : program.lines) {
    std::vector<bool> arguments;
    for (Argument const& argument : line.arguments) arguments.push_back(is_nan(argument));
    lines.push_back(gives_nan(line, arguments));
  }
  return is_nan(program.outputs[0]);
}

}  // namespace cutlass_fused::program
