// Texts in lines of words, as PTX is.
#pragma once

#include <string_view>

namespace cutlass_fused::link {

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// What names are made of, but for the % and the $ that they may begin with.
inline bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$';
}

// The first line, which the text loses.
inline std::string_view take_line(std::string_view& text) {
  size_t const end = text.find('\n');
  std::string_view const line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

inline std::string_view trim_left(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

// The first word, which the line loses; empty: there is none.
inline std::string_view take_word(std::string_view& line) {
  line = trim_left(line);
  size_t size = 0;
  while (size < line.size() && !is_space(line[size])) ++size;
  std::string_view const word = line.substr(0, size);
  line.remove_prefix(size);
  return word;
}

// -1: no number of at most nine digits.
inline int to_number(std::string_view word) {
  if (word.empty() || word.size() > 9) return -1;
  int number = 0;
  for (char const c : word) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

inline bool begins_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace cutlass_fused::link
