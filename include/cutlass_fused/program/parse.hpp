// Reads the text of a program, or refuses it: whatever its bytes are, nothing is made of a text
// with a fault.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "cutlass_fused/program/numbers.hpp"
#include "cutlass_fused/program/program.hpp"

namespace cutlass_fused::program {

// what(): "line 3: expected ..., found ...", in printable ASCII.
struct Malformed : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// What was found, for a message: cut, and with other than printable characters as \x0a.
inline std::string quote(std::string_view found) {
  constexpr size_t kShown = 40;
  std::string text = "\"";
  for (char c : found.substr(0, kShown)) {
    char escaped[8] = {c};
    if (c < ' ' || c > '~' || c == '"' || c == '\\') {
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
    }
    text += escaped;
  }
  return text + (found.size() > kShown ? "\"..." : "\"");
}

// An index without leading zeros; -1: none. Whatever is too large for a program is kTooLarge.
constexpr int kTooLarge = 99999999;
inline int parse_index(std::string_view text) {
  if (text.empty() || (text[0] == '0' && text.size() > 1)) return -1;
  int index = 0;
  for (char c : text) {
    if (!is_digit(c)) return -1;
    index = index < kTooLarge / 10 ? 10 * index + (c - '0') : kTooLarge;
  }
  return index;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Program run() {
    if (text_.size() > kMostBytes) {
      line_ = 1;
      refuse("a text of at most " + std::to_string(kMostBytes) + " bytes",
             std::to_string(text_.size()) + " bytes");
    }
    read_head();
    if (text_.substr(0, kColumns.size()) == kColumns) read_columns();
    while (!read_line()) continue;
    if (!text_.empty()) {
      ++line_;
      refuse("the end of the text behind return", quote(text_.substr(0, text_.find('\n'))));
    }
    return program_;
  }

 private:
  [[noreturn]] void refuse(std::string const& expected, std::string const& found) const {
    throw Malformed("line " + std::to_string(line_) + ": expected " + expected + ", found " +
                    found);
  }

  void start_line(std::string const& expected) {
    ++line_;
    if (text_.empty()) refuse(expected, "the end of the text");
    size_t const end = text_.find('\n');
    if (end == std::string_view::npos) refuse("a newline at its end", "the end of the text");
    rest_ = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    has_more_ = true;
  }

  // Between two spaces lies an empty token, which nothing expects.
  std::string_view next(std::string const& expected) {
    if (!has_more_) refuse(expected, "the end of the line");
    size_t const end = rest_.find(' ');
    std::string_view const token = rest_.substr(0, end);
    has_more_ = end != std::string_view::npos;
    rest_.remove_prefix(has_more_ ? end + 1 : rest_.size());
    return token;
  }

  void expect(std::string const& token) {
    std::string_view const found = next(quote(token));
    if (found != token) refuse(quote(token), quote(found));
  }

  void end_line(std::string const& behind) {
    if (has_more_) refuse("the end of the line behind " + behind, quote(next("")));
  }

  void read_head() {
    start_line(quote("program"));
    expect("program");
    std::string const version = "version " + std::to_string(kVersion);
    std::string_view found = next(version);
    if (parse_index(found) != kVersion) refuse(version, quote(found));
    end_line("the version");

    start_line(quote("operands"));
    expect("operands");
    std::string const count = "a count from 0 to " + std::to_string(kMostOperands);
    found = next(count);
    program_.operands = parse_index(found);
    if (program_.operands < 0 || program_.operands > kMostOperands) refuse(count, quote(found));
    end_line("the count");
  }

  void read_columns() {
    start_line(quote("columns"));
    expect("columns");
    std::string const count = "a count from 1 to " + std::to_string(kMostColumns);
    std::string_view const found = next(count);
    program_.columns = parse_index(found);
    if (program_.columns < 1 || program_.columns > kMostColumns) refuse(count, quote(found));
    end_line("the count");
  }

  bool is_width(double number) const {
    return number >= 1 && number <= program_.columns && number == std::floor(number) &&
           std::fmod(program_.columns, number) == 0;
  }

  // Whether it was the last.
  bool read_line() {
    int const count = static_cast<int>(program_.lines.size());
    bool const is_full = count == kMostLines;
    std::string const own = "v" + std::to_string(count);
    std::string const expected = is_full ? "\"return\" behind " + std::to_string(count) + " lines"
                                         : quote(own) + " or \"return\"";
    start_line(expected);
    std::string_view const found = next(expected);
    if (found == "return") {
      read_outputs();
      return true;
    }
    if (is_full || found != own) refuse(expected, quote(found));
    expect("=");
    std::string_view const name = next("a word");
    Word const* const word = find_word(name);
    if (word == nullptr) refuse("a word", quote(name));
    Line line{word, {}};
    for (int i = 0; i < word->count(); ++i) {
      line.arguments.push_back(read_argument(
          word->type_of(i), "argument " + std::to_string(i + 1) + " of " + std::string(name)));
    }
    end_line("the arguments of " + std::string(name));
    if (line.is_of_rows()) check_rows(line);
    program_.lines.push_back(std::move(line));
    return false;
  }

  void check_rows(Line const& line) const {
    if (program_.columns == 0) {
      refuse("columns behind operands, for " + std::string(line.word->name), "none");
    }
    double const width = line.arguments[1].number;
    if (!is_width(width)) refuse(describe_width(), std::to_string(width));
  }

  std::string describe_width() const {
    return "a width that divides the " + std::to_string(program_.columns) + " columns";
  }

  void read_outputs() {
    do {
      int const count = static_cast<int>(program_.outputs.size());
      if (count == kMostOutputs) end_line(std::to_string(count) + " outputs");
      std::string const place = "output " + std::to_string(count + 1);
      std::string_view token = next(describe('f', place));
      size_t const colon = token.find(':');
      program_.widths.push_back(1);
      if (colon != std::string_view::npos) {
        std::string_view const width = token.substr(colon + 1);
        program_.widths.back() = parse_index(width);
        if (!is_width(program_.widths.back())) refuse(describe_width(), quote(width));
        token = token.substr(0, colon);
      }
      program_.outputs.push_back(read_token(token, 'f', place));
    } while (has_more_);
  }

  static std::string describe(char type, std::string const& place) {
    return std::string(type == 'f'   ? "a float"
                       : type == 'b' ? "a bool"
                                     : "a number") +
           " as " + place;
  }

  // `place`: "argument 2 of add".
  Argument read_argument(char type, std::string const& place) {
    return read_token(next(describe(type, place)), type, place);
  }

  Argument read_token(std::string_view token, char type, std::string const& place) const {
    std::string const expected = describe(type, place);
    Argument const argument = read_name(token, expected);
    if (type == 'n' && argument.kind != Argument::kNumber) refuse(expected, quote(token));
    bool const is_bool =
        argument.kind == Argument::kLine && program_.lines[argument.index].word->result() == 'b';
    if (is_bool != (type == 'b')) {
      refuse(expected, quote(token) + (is_bool ? ", a bool" : ", a float"));
    }
    return argument;
  }

  Argument read_name(std::string_view token, std::string const& expected) const {
    if (token == "acc") return {Argument::kAcc};
    if (auto const number = parse_number(token)) return {Argument::kNumber, 0, *number};
    char const first = token.empty() ? '\0' : token[0];
    int const index = first == 'p' || first == 'v' ? parse_index(token.substr(1)) : -1;
    if (index < 0) refuse(expected, quote(token));
    int const count = first == 'p' ? program_.operands : static_cast<int>(program_.lines.size());
    if (index >= count) {
      refuse(expected + " (there are " + std::to_string(count) +
                 (first == 'p' ? " operands)" : " lines before it)"),
             quote(token));
    }
    return {first == 'p' ? Argument::kOperand : Argument::kLine, index};
  }

  static constexpr std::string_view kColumns = "columns";
  std::string_view text_;  // what follows the line
  std::string_view rest_;  // of the line
  bool has_more_ = false;  // whether the line has another token
  int line_ = 0;           // from 1
  Program program_;
};

// Throws Malformed.
inline Program parse(std::string_view text) { return Parser(text).run(); }

}  // namespace cutlass_fused::program
