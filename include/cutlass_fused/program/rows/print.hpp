// A program with sums, maxima or minima along rows (Program::columns) as a kernel of its own:
//
//   extern "C" __global__ void cutlass_fused_rows(PointwiseParams)
//
// A row is read once and stays in the registers of its threads: a warp or a part of it, or a block.
// It goes in phases (program/rows/phases.hpp), behind each of which groups of columns are merged
// (program/rows/prelude.hpp). All arithmetic is fp32, as PyTorch's kernels have it, and an
// output is rounded once.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cutlass_fused/program/print.hpp"
#include "cutlass_fused/program/rows/phases.hpp"
#include "cutlass_fused/program/rows/plan.hpp"
#include "cutlass_fused/program/rows/prelude.hpp"

namespace cutlass_fused::program {

class RowsPrinter {
 public:
  RowsPrinter(Program const& program, Rows const& rows)
      : program_(program),
        rows_(rows),
        phases_(find_phases(program, rows.inputs.size())),
        are_of_row_(find_lines_of_rows(program, rows)) {}

  std::string print(std::string const& conversions, bool has_instructions) {
    std::string body, before = print_vectors(false), in_row = print_vectors(true);
    for (size_t i = 0; i < rows_.inputs.size(); ++i) {
      if (is_ahead(i)) body += print_words(i);
    }
    for (int phase = 0; phase < phases_.count; ++phase) body += print_phase(phase);
    int const shared = find_shared_bytes(program_, rows_) / 4;
    std::string const wait = shared > 0 ? "    __syncthreads();\n" : "";
    std::string text =
        print_constants() + kRowsPrelude + "\nextern \"C\" __global__ void __launch_bounds__(" +
        number(rows_.threads * rows_of_block(rows_.threads)) +
        ") cutlass_fused_rows(Params const params) {\n"
        "  take_turn();\n"
        "  [[maybe_unused]] __shared__ float shared[" +
        number(std::max(shared, 1)) + "];\n" + before +
        "  for (long long first = (long long)(blockIdx.x) * kRows; first < params.rows;\n"
        "       first += (long long)(gridDim.x) * kRows) {\n"
        "    bool const is_row = first + threadIdx.y < params.rows;\n"
        "    [[maybe_unused]] long long const row = is_row ? first + threadIdx.y : first;\n" +
        in_row + declared_ + body + wait + "  }\n}\n";
    text = conversions + kPointwiseHead + text;
    text = with_functions(kPrelude, std::move(text));
    return has_instructions ? with_functions(kInstructions, std::move(text)) : text;
  }

 private:
  // Of element i, as a number of fp32: kMostColumns.
  static inline std::string const kPlace = "float(column + i)";

  static std::string number(int value) { return std::to_string(value); }
  static size_t index_of(Argument const& argument) { return static_cast<size_t>(argument.index); }

  int count_pieces() const {
    int const slots = program_.columns / rows_.piece;
    return (slots + rows_.threads - 1) / rows_.threads;
  }

  std::string print_constants() const {
    int const slots = program_.columns / rows_.piece, pieces = count_pieces();
    bool const is_unrolled = pieces * rows_.piece <= kMostUnrolled;
    auto const constant = [](char const* name, int value) {
      return std::string("[[maybe_unused]] constexpr int ") + name + " = " + number(value) + ";\n";
    };
    return "\n" + constant("kColumns", program_.columns) + constant("kPiece", rows_.piece) +
           constant("kThreads", rows_.threads) + constant("kRows", rows_of_block(rows_.threads)) +
           constant("kSlots", slots) + constant("kPieces", pieces) +
           constant("kUnrolled", is_unrolled ? pieces : 1) + constant("kIsUnrolled", is_unrolled) +
           constant("kIsWhole", slots % rows_.threads == 0);
  }

  std::string from(size_t input) const {
    return "static_cast<" + std::string(name_of(rows_.inputs[input].type)) +
           " const*>(params.inputs[" + std::to_string(input) + "])";
  }

  // One element of a row or of all, in front of them.
  std::string print_vectors(bool in_row) const {
    std::string text;
    for (size_t i = 0; i < rows_.inputs.size(); ++i) {
      Kind const kind = rows_.inputs[i].kind;
      if (phases_.of_inputs[i] == kInNoPhase || kind == Kind::kTile || kind == Kind::kRow) continue;
      if ((kind == Kind::kColumn) != in_row) continue;
      std::string const x = std::to_string(i);
      text += (in_row ? "    float const x" : "  float const x") + x + " = to_float(" + from(i) +
              (in_row ? "[row * params.input_strides[" + x + "]]);\n" : "[0]);\n");
    }
    return text;
  }

  // What the elements of a group have of a word of rows.
  std::string name_merged(Line const& line, std::string const& index) const {
    switch (choose_merge(program_, rows_, line.width())) {
      case Merge::kRow:
        return "v" + index;
      case Merge::kInPiece:
        return "v" + index + "[at / " + number(line.width()) + "]";
      case Merge::kLanes:
      case Merge::kShared:
        break;
    }
    return "v" + index + "[j]";
  }

  // Of element i of piece j.
  std::string name(Argument const& argument) const {
    if (argument.kind == Argument::kNumber) return print_number(argument.number);
    size_t const index = index_of(argument);
    std::string const text = std::to_string(index);
    if (argument.kind == Argument::kLine) {
      Line const& line = program_.lines[index];
      if (line.is_of_places()) return "(" + kPlace + " == " + name_merged(line, text) + ")";
      if (line.is_of_rows()) return name_merged(line, text);
      return "v" + text + (phases_.are_held[index] && !are_of_row_[index] ? "[at]" : "");
    }
    size_t const input = argument.kind == Argument::kAcc ? 0 : index + 1;
    std::string const x = "x" + std::to_string(input);
    Kind const kind = rows_.inputs[input].kind;
    if (kind == Kind::kTile) return x + (phases_.are_kept[input] ? "[at]" : "[i]");
    return kind == Kind::kRow ? x + "[i]" : x;
  }

  // Whether a phase loads the input: of a row each that reads it, of a tile the first.
  bool loads(size_t input, int phase) const {
    Kind const kind = rows_.inputs[input].kind;
    if (kind == Kind::kTile) return phases_.of_inputs[input] == phase;
    return kind == Kind::kRow && reads(input, phase);
  }

  bool reads(size_t input, int phase) const {
    auto const is_it = [&](Argument const& argument) {
      bool const is_acc = argument.kind == Argument::kAcc;
      return (is_acc && input == 0) ||
             (argument.kind == Argument::kOperand && index_of(argument) + 1 == input);
    };
    for (size_t i = 0; i < program_.lines.size(); ++i) {
      if (phases_.of_lines[i] != phase) continue;
      auto const& arguments = program_.lines[i].arguments;
      if (std::any_of(arguments.begin(), arguments.end(), is_it)) return true;
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (phases_.of_outputs[i] == phase && is_it(program_.outputs[i])) return true;
    }
    return false;
  }

  // A tile that a later phase reads is asked for with what the first one reads, not behind the
  // threads' meeting, and piece by piece behind stores: where all of it fits into few registers.
  bool is_ahead(size_t input) const {
    constexpr int kMostBytes = 64;
    auto const [type, kind] = rows_.inputs[input];
    return kind == Kind::kTile && phases_.of_inputs[input] > 0 &&
           size_of(type) * rows_.piece * count_pieces() <= kMostBytes;
  }
  std::string place(size_t input) const {
    bool const is_tile = rows_.inputs[input].kind == Kind::kTile;
    return from(input) +
           (is_tile ? " + row * params.input_strides[" + std::to_string(input) + "]" : "") +
           " + column";
  }
  static std::string begin_pieces() {
    return "#pragma unroll kUnrolled\n"
           "    for (int j = 0; j < kPieces; ++j) {\n"
           "      int const slot = j * kThreads + int(threadIdx.x);\n"
           "      [[maybe_unused]] bool const is_in = kIsWhole || slot < kSlots;\n"
           "      [[maybe_unused]] int const column = slot * kPiece;\n";
  }

  std::string print_words(size_t input) const {
    std::string const words = "w" + std::to_string(input);
    return "    Piece<" + std::string(name_of(rows_.inputs[input].type)) + ", kPiece> " + words +
           "[kPieces];\n" + begin_pieces() + "      load_words(is_in, " + words + "[j], " +
           place(input) + ");\n    }\n";
  }

  std::string print_loads(int phase) {
    std::string text;
    for (size_t i = 0; i < rows_.inputs.size(); ++i) {
      if (!loads(i, phase)) continue;
      bool const is_kept = rows_.inputs[i].kind == Kind::kTile && phases_.are_kept[i];
      std::string const x = "x" + std::to_string(i), to = x + (is_kept ? " + j * kPiece" : "");
      if (is_kept) {
        declared_ += "    float " + x + "[kPieces * kPiece];\n";
      } else {
        text += "      float " + x + "[kPiece];\n";
      }
      if (is_ahead(i)) {
        text += "      read_words(w" + std::to_string(i) + "[j], " + to + ");\n";
      } else {
        text += "      load_where<kPiece>(is_in, " + to + ", " + place(i) + ");\n";
      }
    }
    return text;
  }

  // The first place is the least.
  static std::string operation(Line const& line) {
    std::string_view const name = line.word->name;
    if (name == "row_sum") return "RowSum";
    return name == "row_max" || name == "row_last" ? "RowMax" : "RowMin";
  }

  // Where a truth does not hold there is no place: one behind all, or in front.
  static std::string print_place(Line const& line, std::string const& truth) {
    return truth + " ? " + kPlace + " : " + (operation(line) == "RowMin" ? "kColumns" : "-1.0f");
  }

  // What a piece gives to a word of rows, behind its elements.
  std::string print_piece(Line const& line, std::string const& index) {
    std::string const op = operation(line);
    int const width = line.width();
    switch (choose_merge(program_, rows_, width)) {
      case Merge::kInPiece: {
        std::string const groups = number(rows_.piece / width);
        declared_ += "    float v" + index + "[kPieces * " + groups + "];\n";
        return "#pragma unroll\n      for (int i = 0; i < " + groups + "; ++i) {\n        v" +
               index + "[j * " + groups + " + i] = merge<" + op + ", " + number(width) + ">(r" +
               index + " + i * " + number(width) + ");\n      }\n";
      }
      case Merge::kRow:
        declared_ += "    float t" + index + "[kPieces];\n";
        return "      t" + index + "[j] = is_in ? merge<" + op + ", kPiece>(r" + index +
               ") : " + op + "::nothing();\n";
      case Merge::kLanes:
      case Merge::kShared:
        break;
    }
    declared_ += "    float v" + index + "[kPieces];\n";
    return "      v" + index + "[j] = is_in ? merge<" + op + ", kPiece>(r" + index + ") : " + op +
           "::nothing();\n";
  }

  // What threads merge of a word of rows, behind all pieces.
  std::string print_merge(Line const& line, std::string const& index) {
    std::string const op = operation(line);
    switch (choose_merge(program_, rows_, line.width())) {
      case Merge::kInPiece:
        return "";
      case Merge::kRow:
        turn_ = 1 - turn_;
        return "    float const v" + index + " = merge_row<" + op + ", " + number(turn_) + ">(t" +
               index + ", shared);\n";
      case Merge::kLanes:
        return "#pragma unroll kUnrolled\n    for (int j = 0; j < kPieces; ++j) v" + index +
               "[j] = merge_lanes<" + op + ", " + number(line.width() / rows_.piece) + ">(v" +
               index + "[j]);\n";
      case Merge::kShared:
        break;
    }
    // The space for parts of whole rows lies there, too.
    return "    merge_groups<" + op + ", " + number(line.width() / rows_.piece) + ">(v" + index +
           ", shared);\n" + (rows_.threads > kWarp ? "    __syncthreads();\n" : "");
  }

  static char const* type_of(Line const& line) {
    return line.word->result() == 'b' ? "bool" : "float";
  }
  std::string print_value(Line const& line) const {
    return print_line(line, Arithmetic::kAsPyTorch,
                      [&](Argument const& argument) { return name(argument); });
  }

  // Of an element that is divided by a number of its row: RowDivisor.
  bool divides_by_row(Line const& line) const {
    Argument const& by = line.arguments.back();
    return line.word->name == "div" && by.kind == Argument::kLine && are_of_row_[index_of(by)];
  }
  std::string print_quotient(Line const& line) {
    std::string const by = name(line.arguments[1]), divisor = "by_" + by;
    if (divisors_.insert(by).second) {
      new_divisors_ += "    RowDivisor const " + divisor + "(" + by + ");\n";
    }
    return "divide(" + name(line.arguments[0]) + ", " + divisor + ")";
  }

  // What is one number for a row is computed once by a thread, not with each element.
  std::string print_of_row(int phase) const {
    std::string text;
    for (size_t i = 0; i < program_.lines.size(); ++i) {
      Line const& line = program_.lines[i];
      if (phases_.of_lines[i] != phase || !are_of_row_[i] || line.is_of_rows()) continue;
      text += std::string("    ") + type_of(line) + " const v" + std::to_string(i) + " = " +
              print_value(line) + ";\n";
    }
    return text;
  }

  std::string print_elements(int phase) {
    std::string text;
    for (size_t i = 0; i < program_.lines.size(); ++i) {
      Line const& line = program_.lines[i];
      if (phases_.of_lines[i] != phase || (are_of_row_[i] && !line.is_of_rows())) continue;
      std::string const index = std::to_string(i);
      if (line.is_of_rows()) {
        std::string const given = name(line.arguments[0]);
        text += "        r" + index +
                "[i] = " + (line.is_of_places() ? print_place(line, given) : given) + ";\n";
        continue;
      }
      std::string const type = type_of(line);
      bool const is_held = phases_.are_held[i];
      if (is_held) declared_ += "    " + type + " v" + index + "[kPieces * kPiece];\n";
      text += "        " + (is_held ? "v" + index + "[at]" : type + " const v" + index) + " = " +
              (divides_by_row(line) ? print_quotient(line) : print_value(line)) + ";\n";
    }
    return text;
  }

  // Whether an element is the first of its group: in terms of i and j, of which loops that are
  // unrolled know most, so that little is computed for others.
  std::string first_of(int width) const {
    if (width == program_.columns) return "at == 0 && threadIdx.x == 0";
    if (width % rows_.piece == 0) return "i == 0 && column % " + number(width) + " == 0";
    if (rows_.piece % width == 0) return "i % " + number(width) + " == 0";
    return "(column + i) % " + number(width) + " == 0";
  }

  // Inside of the elements of a piece, and behind them.
  void print_outputs(int phase, std::string& before, std::string& inside, std::string& behind) {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (phases_.of_outputs[i] != phase) continue;
      std::string const index = std::to_string(i);
      std::string const value = name(program_.outputs[i]);
      std::string const to = "static_cast<" + std::string(name_of(rows_.outputs[i])) +
                             "*>(params.outputs[" + index + "])";
      std::string const width = number(program_.widths[i]);
      if (program_.widths[i] == 1) {
        before += "      float y" + index + "[kPiece];\n";
        inside += "        y" + index + "[i] = " + value + ";\n";
        behind += "      if (is_in && is_row) store(" + to + " + row * kColumns + column, y" +
                  index + ");\n";
      } else {
        inside += "        if (is_in && is_row && " + first_of(program_.widths[i]) +
                  ") {\n          round_to(" + to + "[row * (kColumns / " + width +
                  ") + (column + i) / " + width + "], " + value + ");\n        }\n";
      }
    }
  }

  std::string print_phase(int phase) {
    std::string before = print_loads(phase), inside = print_elements(phase), behind, merges;
    for (size_t i = 0; i < program_.lines.size(); ++i) {
      Line const& line = program_.lines[i];
      if (!line.is_of_rows() || phases_.of_lines[i] != phase) continue;
      std::string const index = std::to_string(i);
      before += "      float r" + index + "[kPiece];\n";
      behind += print_piece(line, index);
      merges += print_merge(line, index);
    }
    print_outputs(phase, before, inside, behind);
    return print_of_row(phase) + std::exchange(new_divisors_, {}) + begin_pieces() + before +
           "#pragma unroll\n"
           "      for (int i = 0; i < kPiece; ++i) {\n"
           "        [[maybe_unused]] int const at = j * kPiece + i;\n" +
           inside + "      }\n" + behind + "    }\n" + merges;
  }

  Program const& program_;
  Rows const& rows_;
  Phases const phases_;
  std::vector<bool> const are_of_row_;
  std::string declared_;  // what phases share
  std::set<std::string> divisors_;
  std::string new_divisors_;  // of the phase that is printed
  int turn_ = 0;
};

// `conversions`, `has_instructions`: as of print_pointwise.
inline std::string print_rows(Program const& program, Rows const& rows,
                              std::string const& conversions = kConversions,
                              bool has_instructions = true) {
  return RowsPrinter(program, rows).print(conversions, has_instructions);
}

}  // namespace cutlass_fused::program
