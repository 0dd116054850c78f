// The phases of a program of rows: each computes what needs no later result of the row, and then
// merges groups of columns.
#pragma once

#include <algorithm>
#include <vector>

#include "cutlass_fused/program/rows/plan.hpp"

namespace cutlass_fused::program {

constexpr int kInNoPhase = -1;

// Of each line the phase that computes it: of a word of rows, in which its argument is merged.
// What several phases read is computed as late as one of them allows, so that it is held for a
// short time.
struct Phases {
  std::vector<int> of_lines;
  std::vector<int> of_outputs;
  std::vector<int> of_inputs;  // the first that reads it
  std::vector<bool> are_held;  // lines that a later phase reads, too
  std::vector<bool> are_kept;  // inputs that a later phase reads, too
  int count = 1;
};

inline Phases find_phases(Program const& program, size_t inputs) {
  Phases phases;
  size_t const count = program.lines.size();
  std::vector<int> ready(count);  // the first phase that can read it
  auto const of = [&](Argument const& argument) {
    return argument.kind == Argument::kLine ? ready[static_cast<size_t>(argument.index)] : 0;
  };
  for (size_t i = 0; i < count; ++i) {
    Line const& line = program.lines[i];
    for (Argument const& argument : line.arguments) ready[i] = std::max(ready[i], of(argument));
    if (line.is_of_rows()) ++ready[i];
  }
  phases.of_lines.assign(count, kInNoPhase);
  phases.are_held.assign(count, false);
  phases.of_inputs.assign(inputs, kInNoPhase);
  phases.are_kept.assign(inputs, false);
  // From the last line on: each has then met all that read it.
  auto const read = [&](Argument const& argument, int phase) {
    bool const is_line = argument.kind == Argument::kLine;
    if (!is_line && argument.kind == Argument::kNumber) return;
    auto& first = is_line ? phases.of_lines : phases.of_inputs;
    auto& later = is_line ? phases.are_held : phases.are_kept;
    size_t const index = is_line ? static_cast<size_t>(argument.index)
                         : argument.kind == Argument::kAcc
                             ? 0
                             : 1 + static_cast<size_t>(argument.index);
    bool const is_new = first[index] == kInNoPhase;
    if (!is_new && first[index] != phase) later[index] = true;
    first[index] = is_new ? phase : std::min(first[index], phase);
  };
  for (Argument const& output : program.outputs) {
    int const phase = of(output);
    phases.of_outputs.push_back(phase);
    phases.count = std::max(phases.count, phase + 1);
    read(output, phase);
  }
  for (size_t i = count; i-- > 0;) {
    Line const& line = program.lines[i];
    int& phase = phases.of_lines[i];
    if (phase == kInNoPhase) continue;  // nothing reads it
    if (line.is_of_rows()) phase = ready[i] - 1;
    for (Argument const& argument : line.arguments) read(argument, phase);
  }
  return phases;
}

// Of each line whether it is one number for all elements of a row.
inline std::vector<bool> find_lines_of_rows(Program const& program, Rows const& rows) {
  std::vector<bool> are_of_row;
  auto const is_of_row = [&](Argument const& argument) {
    size_t const index = static_cast<size_t>(argument.index);
    switch (argument.kind) {
      case Argument::kNumber:
        return true;
      case Argument::kLine:
        return bool(are_of_row[index]);
      case Argument::kAcc:
        return false;
      case Argument::kOperand:
        break;
    }
    Kind const kind = rows.inputs[index + 1].kind;
    return kind == Kind::kScalar || kind == Kind::kColumn;
  };
  for (Line const& line : program.lines) {
    auto const& arguments = line.arguments;
    are_of_row.push_back(line.is_of_rows()
                             ? !line.is_of_places() &&
                                   choose_merge(program, rows, line.width()) == Merge::kRow
                             : std::all_of(arguments.begin(), arguments.end(), is_of_row));
  }
  return are_of_row;
}

}  // namespace cutlass_fused::program
