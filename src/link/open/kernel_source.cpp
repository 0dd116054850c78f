#include "link/open/kernel_source.hpp"

#include "link/open/ptx_lines.hpp"

namespace cutlass_fused::link {
namespace {

constexpr std::string_view kEntry = ".visible .entry ", kBegin = "\n{";

// What stands between two marks; empty: nothing does.
std::string_view between(std::string_view text, std::string_view first, std::string_view last) {
  size_t const at = text.find(first);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + first.size());
  size_t const end = text.find(last);
  return end == std::string_view::npos ? std::string_view{} : text.substr(0, end);
}

bool is_number(std::string_view text) { return to_number(text) > 0; }

bool is_identifier(std::string_view text) {
  for (char const c : text) {
    if (!is_name(c) || c == '$') return false;
  }
  return !text.empty();
}

// The dynamic shared memory, which CUDA has to declare; false: it is none that is known.
bool add_shared_memory(std::string_view head, std::string& source, std::string& name) {
  std::string_view const line = between(head, ".extern .shared .align ", "\n");
  if (line.empty()) return !contains(head, ".extern");
  std::string_view const align = line.substr(0, line.find(' '));
  name = between(line, " .b8 ", "[];");
  if (!is_number(align) || !is_identifier(name)) return false;
  source.append("extern __shared__ __align__(").append(align).append(") char ").append(name);
  source += "[];\n";
  return true;
}

// A line of the asm, in which a % begins one of its operands.
void add_line(std::string_view line, std::string& source) {
  for (char const c : trim_left(line)) source.append(c == '%' ? 2 : 1, c);
  source += '\n';
}

void add_body(std::string_view head, std::string_view body, std::string& source) {
  // Tables that functions read. Variables without values are CUTLASS's, and nothing names them.
  while (!head.empty()) {
    std::string_view const line = take_line(head);
    if (begins_with(line, ".global ") && contains(line, "=")) add_line(line, source);
  }
  while (!body.empty()) {
    std::string_view const line = take_line(body);
    std::string_view const text = trim_left(line);
    if (!text.empty() && !begins_with(text, "//")) add_line(line, source);
  }
}

}  // namespace

std::optional<Signature> read_signature(std::string_view ptx) {
  size_t const entry = ptx.find(kEntry);
  if (entry == std::string_view::npos) return {};
  std::string_view text = ptx.substr(entry);
  size_t const end = text.find(kBegin);
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end);
  Signature found;
  std::string blocks;
  while (!text.empty()) {
    std::string_view line = take_line(text), rest = line;
    std::string_view const first = take_word(rest);
    if (begins_with(line, kEntry)) {
      found.name = between(line, kEntry, "(");
    } else if (first == ".param" && found.bytes.empty()) {
      found.align = between(line, ".align ", " ");
      found.bytes = between(line, " " + found.name + "_param_0[", "]");
      if (contains(line, ",")) return {};  // there are more
    } else if (first == ".maxntid") {
      found.bounds = between(line, ".maxntid ", ", 1, 1");
    } else if (first == ".minnctapersm") {
      blocks = take_word(rest);
      if (!is_number(blocks)) return {};
    } else if (line != ")") {
      return {};
    }
  }
  if (!is_identifier(found.name) || !is_number(found.align) || !is_number(found.bytes) ||
      !is_number(found.bounds)) {
    return {};
  }
  if (!blocks.empty()) found.bounds += ", " + blocks;
  return found;
}

std::string make_kernel_source(std::string_view ptx) {
  auto const signature = read_signature(ptx);
  if (!signature || contains(ptx, ")PTX\"")) return {};
  auto const& [name, align, bytes, bounds] = *signature;
  size_t const entry = ptx.find(kEntry), begin = ptx.find(kBegin, entry) + kBegin.size();
  size_t const end = ptx.rfind('}');
  if (end == std::string_view::npos || end < begin) return {};
  std::string source, shared;
  source.reserve(ptx.size() * 5 / 4);
  source += "struct __align__(" + align + ") Params { char bytes[" + bytes + "]; };\n";
  if (!add_shared_memory(ptx.substr(0, entry), source, shared)) return {};
  source += "extern \"C\" __global__ void __launch_bounds__(" + bounds + ") " + name +
            "(__grid_constant__ Params const params) {\nasm volatile(R\"PTX({\n";
  add_body(ptx.substr(0, entry), ptx.substr(begin, end - begin), source);
  // The operands make NVRTC declare what the body names.
  source += "})PTX\" :: \"l\"(&params)";
  if (!shared.empty()) source += ", \"l\"(" + shared + ")";
  source += " : \"memory\");\n}\n";
  return source;
}

}  // namespace cutlass_fused::link
