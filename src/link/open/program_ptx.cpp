#include "link/open/program_ptx.hpp"

#include "cutlass_fused/epilogue/open/slots.hpp"
#include "link/open/ptx_lines.hpp"

namespace cutlass_fused::link {
namespace {

using Piece = ProgramPtx::Piece;

constexpr std::string_view kIn = "// CUTLASS_FUSED_IN ", kOut = "// CUTLASS_FUSED_OUT ";
// What NVVM calls memory of a function's own: the kernel may have such, too.
constexpr std::string_view kLocal = "__local_depot";

// The register that a marked line writes first: "mov.f32 %f1, ..."; empty: there is none.
std::string_view register_of(std::string_view line) {
  if (take_word(line) != "mov.f32") return {};
  std::string_view word = take_word(line);
  if (word.size() < 3 || word.front() != '%' || word.back() != ',') return {};
  word.remove_suffix(1);
  for (char const c : word.substr(1)) {
    if (!is_name(c)) return {};
  }
  return word;
}

class Parser {
 public:
  std::optional<ProgramPtx> parse(std::string_view text) {
    enum { kHead, kSignature, kBody, kTail } at = kHead;
    while (!text.empty()) {
      std::string_view const line = trim_left(take_line(text));
      bool const is_marked = contains(line, kIn) || contains(line, kOut);
      if (line.empty() || (begins_with(line, "//") && !is_marked)) continue;
      bool is_good = true;
      if (at == kHead) {
        if (contains(line, ".entry ")) {
          at = kSignature;
        } else {
          is_good = add_to_head(line);
        }
      }
      // Parameters the program has none; what else stands here may not be left out.
      if (at == kSignature) {
        if (line == "{") {
          at = kBody;
        } else {
          is_good = is_good && (contains(line, ".entry ") ? line.back() == ')' : line == ")");
        }
      } else if (at == kBody) {
        if (line == "}" && --depth_ == 0) {
          at = kTail;
        } else {
          is_good = add(line);
        }
      } else if (at == kTail) {
        is_good = false;
      }
      if (!is_good) return {};
    }
    push("$end_", Piece::kCall);
    push(":\n", Piece::kNothing);
    return at == kTail && has_y_ ? std::optional<ProgramPtx>(std::move(program_)) : std::nullopt;
  }

 private:
  // A function that is called would have to be told apart from the kernel's: there is none, since
  // NVRTC has them all inlined.
  bool add_to_head(std::string_view line) {
    if (begins_with(line, ".version ") || begins_with(line, ".target ") ||
        begins_with(line, ".address_size ")) {
      return true;
    }
    if (!begins_with(line, ".global ") || !contains(line, " = ") || line.back() != ';') {
      return false;
    }
    program_.tables.append(line).append(1, '\n');
    return true;
  }

  // A line of the body.
  bool add(std::string_view line) {
    size_t const in = line.find(kIn), out = line.find(kOut);
    if (in != std::string_view::npos) return add_input(line, line.substr(in + kIn.size()));
    if (out != std::string_view::npos) return add_output(line, line.substr(out + kOut.size()));
    if (begins_with(line, ".local ")) {
      program_.locals += name_apart(line) + '\n';
    } else if (line == "ret;") {
      push("bra.uni $end_", Piece::kCall);
      so_far_ += ";\n";
    } else {
      // Ways out of the kernel, and tables of labels, which rename() would miss.
      for (char const* const word : {"ret;", "exit;", "call", ".branchtargets"}) {
        if (contains(line, word)) return false;
      }
      if (begins_with(line, "{")) ++depth_;
      rename(name_apart(line));
      so_far_ += '\n';
    }
    return true;
  }

  bool add_input(std::string_view line, std::string_view rest) {
    int const number = to_number(take_word(rest));
    std::string_view const to = register_of(line);
    if (number < 0 || number > open::kSlots || to.empty()) return false;
    so_far_ += "mov.f32 ";
    rename(to);
    push(", ", Piece::kInput, number);
    so_far_ += ";\n";
    return true;
  }

  bool add_output(std::string_view line, std::string_view rest) {
    int const number = to_number(take_word(rest));
    std::string_view const from = register_of(line);
    if (number < 0 || number >= open::kOutputs || from.empty()) return false;
    push("mov.f32 ", Piece::kOutput, number);
    so_far_ += ", ";
    rename(from);
    so_far_ += ";\n";
    has_y_ = has_y_ || number == 0;
    return true;
  }

  static std::string name_apart(std::string_view line) {
    std::string text(line);
    for (size_t at = text.find(kLocal); at != std::string::npos; at = text.find(kLocal, at)) {
      text.insert(at, "u");
      at += kLocal.size() + 1;
    }
    return text;
  }

  // Registers get names of their own, since the block's would hide those of the kernel, and labels
  // one for each call: blocks scope registers, but a label belongs to all of a function.
  void rename(std::string_view line) {
    for (size_t i = 0; i < line.size(); ++i) {
      bool const begins = i + 1 < line.size() && is_name(line[i + 1]);
      so_far_ += line[i];
      if (begins && line[i] == '%') so_far_ += "u_";
      if (begins && line[i] == '$' && (i == 0 || !is_name(line[i - 1]))) {
        push("u", Piece::kCall);
        so_far_ += '_';
      }
    }
  }

  void push(std::string_view last, Piece::Behind behind, int index = 0) {
    so_far_ += last;
    program_.body.push_back({std::move(so_far_), behind, index});
    so_far_.clear();
  }

  ProgramPtx program_;
  std::string so_far_;
  int depth_ = 1;
  bool has_y_ = false;
};

}  // namespace

std::optional<ProgramPtx> parse_program(std::string_view ptx) { return Parser().parse(ptx); }

}  // namespace cutlass_fused::link
