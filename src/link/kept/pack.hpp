// Packs: files of many pieces, each packed by zlib, behind a list that tells what they are.
//
//   FIRST LINE                       which says what is packed
//   ... UNPACKED_BYTES PACKED_BYTES SUM
//   ...                              a line for each piece; SUM is the SHA-256 of the piece. What
//                                    stands before these three is told where the pack is
//                                    an empty line, and 32 bytes of SHA-256 of all that
//   the packed pieces, in the same order
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "link/open/inflate.hpp"
#include "link/open/ptx_lines.hpp"
#include "link/open/sha256.hpp"

namespace cutlass_fused::link {

struct PackedPiece {
  size_t size;  // unpacked
  std::string sum;
  std::string_view bytes;
};

// Nothing: it is damaged.
inline std::optional<std::string> unpack(PackedPiece const& piece) {
  auto content = inflate(piece.bytes, piece.size);
  if (!content || sha256(*content) != piece.sum) return {};
  return content;
}

// Reads a list line by line, and with each line its piece. The pieces are not looked at.
class PackReader {
 public:
  // `what`: the packed things, for the error.
  PackReader(std::string_view pack, std::string_view first_line, std::string const& what) {
    constexpr size_t kSumBytes = 32;
    size_t const end = pack.find("\n\n");
    if (pack.empty()) {
      error_ = "there is no such file, or nothing in it";
    } else if (!begins_with(pack, first_line)) {
      error_ = "it is no pack of " + what;
    } else if (end == std::string_view::npos || pack.size() - (end + 2) < kSumBytes) {
      error_ = "it is cut off";
    } else if (sha256(pack.substr(0, end + 2)) != pack.substr(end + 2, kSumBytes)) {
      error_ = "its sum is wrong";
    } else {
      list_ = pack.substr(first_line.size(), end + 1 - first_line.size());
      pieces_ = pack.substr(end + 2 + kSumBytes);
    }
  }

  // Whether there is another line, from which words are taken then. At the end of the list, whether
  // something is wrong is known.
  bool next() {
    if (error_.empty() && list_.empty() && !pieces_.empty())
      error_ = "there is something behind it";
    if (!error_.empty() || list_.empty()) return false;
    line_ = take_line(list_);
    return true;
  }

  std::string_view word() { return take_word(line_); }
  int number() { return to_number(word()); }

  // By the rest of the line. Nothing: it is wrong.
  std::optional<PackedPiece> piece() {
    // More than any piece, so that a wrong size allocates nothing absurd.
    constexpr int kMostBytes = 1 << 26;
    int const size = number(), packed = number();
    std::string sum = read_sum(word());
    if (size < 0 || size > kMostBytes || packed < 0 || sum.empty() || !line_.empty()) {
      fail("a line of its list is wrong");
      return {};
    }
    auto const bytes = static_cast<size_t>(packed);
    if (bytes > pieces_.size()) {
      fail("it is cut off");
      return {};
    }
    PackedPiece piece{static_cast<size_t>(size), std::move(sum), pieces_.substr(0, bytes)};
    pieces_.remove_prefix(bytes);
    return piece;
  }

  // What was found first stays.
  void fail(std::string const& error) {
    if (error_.empty()) error_ = error;
  }

  // Empty: nothing is wrong, as far as it was read.
  std::string const& error() const { return error_; }

 private:
  std::string_view list_, pieces_, line_;
  std::string error_;
};

}  // namespace cutlass_fused::link
