#include "link/open/fill_kernel.hpp"

#include "cutlass_fused/epilogue/open/slots.hpp"
#include "link/open/program_ptx.hpp"
#include "link/open/ptx_lines.hpp"

namespace cutlass_fused::link {
namespace {

constexpr std::string_view kMark = "// CUTLASS_FUSED_";
constexpr int kMostWords = open::kOutputs + 1 + open::kSlots;  // of a marked line

// The words of a marked line; false: it has another number of them.
bool take_words(std::string_view line, std::string_view* words, int count) {
  for (int i = 0; i < count; ++i) {
    words[i] = take_word(line);
    if (words[i].empty()) return false;
  }
  return take_word(line).empty();
}

// What is written for the marked lines that say how an operand lies.
class Accesses {
 public:
  Accesses(std::string_view types, std::string& to) : types_(types), to_(to) {}

  // False: it is no such line.
  bool write(std::string_view kind, std::string_view line) {
    int const slot = to_number(take_word(line));
    if (slot < 0 || slot >= open::kTypes) return false;
    type_ = types_[static_cast<size_t>(slot)];
    bool const is_output = slot >= open::kSlots;
    if (kind == "USED") return take_words(line, words_, 1) && write_used();
    if (kind == "SIZE") return take_words(line, words_, 1) && write_size();
    if (kind == "PACK") return is_output && take_words(line, words_, 3) && write_pack();
    if (kind == "STORE") return is_output && take_words(line, words_, 4) && write_store();
    if (is_output) return false;
    if (kind == "FETCH") return take_words(line, words_, 4) && write_fetch();
    if (kind == "CONVERT") return take_words(line, words_, 2) && write_convert();
    return kind == "LOAD" && take_words(line, words_, 4) && write_load();
  }

 private:
  template <class... Texts>
  void add(Texts... texts) {
    (to_.append(std::string_view(texts)), ...);
  }
  bool is_wide() const { return type_ == open::kFloat32; }

  // Opens a block, with the address of data[at] in %u_a.
  void open_block(std::string_view data, std::string_view at) {
    add("{\n.reg .b64 %u_a;\n.reg .b16 %u_h;\n.reg .b32 %u_r;\n.reg .pred %u_p;\n");
    add("shl.b64 %u_a, ", at, is_wide() ? ", 2;\n" : ", 1;\n");
    add("add.s64 %u_a, ", data, ", %u_a;\n");
  }

  // What %u_h is in fp32.
  void add_wider(std::string_view to) {
    if (type_ == open::kFloat16) {
      add("cvt.f32.f16 ", to, ", %u_h;\n");
    } else {
      add("cvt.u32.u16 %u_r, %u_h;\nshl.b32 %u_r, %u_r, 16;\nmov.b32 ", to, ", %u_r;\n");
    }
  }

  bool write_used() {
    add("mov.b32 ", words_[0], type_ == open::kNone ? ", 0;\n" : ", 1;\n");
    return true;
  }

  // A number by value lies in no memory.
  bool write_size() {
    bool const is_in_memory = type_ != open::kNone && type_ != open::kByValue;
    add("mov.b32 ", words_[0], !is_in_memory ? ", 0;\n" : is_wide() ? ", 4;\n" : ", 2;\n");
    return true;
  }

  // The first of a pair is the lower half. What is no pair of 16 bits is never stored.
  bool write_pack() {
    auto const to = words_[0], first = words_[1], second = words_[2];
    if (type_ == open::kByValue) return false;
    if (type_ == open::kNone || is_wide()) {
      add("mov.b32 ", to, ", 0;\n");
    } else {
      add(type_ == open::kFloat16 ? "cvt.rn.f16x2.f32 " : "cvt.rn.bf16x2.f32 ", to, ", ", second,
          ", ", first, ";\n");
    }
    return true;
  }

  bool write_fetch() {
    auto const [to, data, at, value] = words_;
    if (type_ == open::kNone) {
      add("mov.b32 ", to, ", 0;\n");
    } else if (type_ == open::kByValue) {
      add("mov.b32 ", to, ", ", value, ";\n");
    } else {
      open_block(data, at);
      if (is_wide()) {
        add("ld.global.b32 ", to, ", [%u_a];\n}\n");
      } else {
        add("ld.global.b16 %u_h, [%u_a];\ncvt.u32.u16 ", to, ", %u_h;\n}\n");
      }
    }
    return true;
  }

  bool write_convert() {
    std::string_view const to = words_[0], raw = words_[1];
    if (type_ == open::kNone) {
      add("mov.f32 ", to, ", 0f00000000;\n");
    } else if (is_wide() || type_ == open::kByValue) {
      add("mov.b32 ", to, ", ", raw, ";\n");
    } else {
      add("{\n.reg .b16 %u_h;\n.reg .b32 %u_r;\ncvt.u16.u32 %u_h, ", raw, ";\n");
      add_wider(to);
      add("}\n");
    }
    return true;
  }

  bool write_load() {
    auto const [to, data, at, is_in] = words_;
    if (type_ == open::kByValue) return false;
    add("mov.f32 ", to, ", 0f00000000;\n");
    if (type_ == open::kNone) return true;
    open_block(data, at);
    add("setp.ne.s32 %u_p, ", is_in, ", 0;\n");
    if (is_wide()) {
      add("@%u_p ld.global.f32 ", to, ", [%u_a];\n");
    } else {
      add("mov.b16 %u_h, 0;\n@%u_p ld.global.b16 %u_h, [%u_a];\n");
      add_wider(to);
    }
    add("}\n");
    return true;
  }

  bool write_store() {
    auto const [data, at, is_in, from] = words_;
    if (type_ == open::kByValue) return false;
    if (type_ == open::kNone) return true;
    open_block(data, at);
    add("setp.ne.s32 %u_p, ", is_in, ", 0;\n");
    if (is_wide()) {
      add("@%u_p st.global.f32 [%u_a], ", from, ";\n}\n");
    } else {
      add(type_ == open::kFloat16 ? "cvt.rn.f16.f32 %u_h, " : "cvt.rn.bf16.f32 %u_h, ", from,
          ";\n@%u_p st.global.b16 [%u_a], %u_h;\n}\n");
    }
    return true;
  }

  std::string_view types_;
  std::string& to_;
  char type_ = open::kNone;
  std::string_view words_[4];
};

// The call number `call`, with the words of its marked line.
void add_call(ProgramPtx const& program, std::string_view const* words, int call, std::string& to) {
  to += "{\n";
  for (ProgramPtx::Piece const& piece : program.body) {
    to += piece.text;
    switch (piece.behind) {
      case ProgramPtx::Piece::kOutput:
        to += words[piece.index];
        break;
      case ProgramPtx::Piece::kInput:
        to += words[open::kOutputs + piece.index];
        break;
      case ProgramPtx::Piece::kCall:
        to += std::to_string(call);
        break;
      case ProgramPtx::Piece::kNothing:
        break;
    }
  }
  to += "}\n";
}

bool are_types(std::string_view types) {
  for (char const type : types) {
    if (type < open::kNone || type > open::kByValue) return false;
  }
  return types.size() == open::kTypes;
}

}  // namespace

std::optional<std::string> fill_kernel(std::string_view kernel, std::string_view program_text,
                                       std::string_view types) {
  auto const program = parse_program(program_text);
  if (!program || !are_types(types)) return {};
  std::string filled;
  filled.reserve(4 * kernel.size());
  Accesses accesses(types, filled);
  int calls = 0, entries = 0;
  bool has_locals = false;
  while (!kernel.empty()) {
    std::string_view const line = take_line(kernel);
    size_t const mark = line.find(kMark);
    if (mark == std::string_view::npos) {
      if (contains(line, ".entry ") && ++entries == 1) filled += program->tables;
      filled.append(line).append(1, '\n');
      if (line == "{" && entries == 1 && !has_locals) {
        filled += program->locals;
        has_locals = true;
      }
      continue;
    }
    std::string_view rest = line.substr(mark + kMark.size());
    std::string_view const kind = take_word(rest);
    if (kind == "APPLY") {
      std::string_view words[kMostWords];
      if (!take_words(rest, words, kMostWords)) return {};
      add_call(*program, words, calls++, filled);
    } else if (!accesses.write(kind, rest)) {
      return {};
    }
  }
  if (calls == 0 || entries != 1 || !has_locals) return {};
  return filled;
}

}  // namespace cutlass_fused::link
