#include "link/open/inflate.hpp"

#include <cstdint>

namespace cutlass_fused::link {
namespace {

constexpr int kMaxBits = 15;
constexpr int kLiterals = 286, kDistances = 30;
// Symbols of literals and lengths: below kEnd a byte, above it a length.
constexpr int kEnd = 256;

class Bits {
 public:
  explicit Bits(std::string_view data) : data_(data) {}

  // Beyond the end come zeros, and the data count as damaged.
  unsigned take(int count) {
    while (held_ < count) {
      if (at_ == data_.size()) {
        is_good_ = false;
        return 0;
      }
      window_ |= uint64_t{static_cast<uint8_t>(data_[at_++])} << held_;
      held_ += 8;
    }
    auto const value = static_cast<unsigned>(window_ & ((uint64_t{1} << count) - 1));
    window_ >>= count;
    held_ -= count;
    return value;
  }

  // The bytes behind the one that is begun. take() holds no whole byte back.
  std::string_view take_bytes(size_t count) {
    window_ = 0;
    held_ = 0;
    if (count > data_.size() - at_) {
      is_good_ = false;
      return {};
    }
    std::string_view const bytes = data_.substr(at_, count);
    at_ += count;
    return bytes;
  }

  bool is_good() const { return is_good_; }
  bool is_at_end() const { return at_ == data_.size(); }

 private:
  std::string_view data_;
  size_t at_ = 0;
  uint64_t window_ = 0;
  int held_ = 0;
  bool is_good_ = true;
};

// A canonical Huffman code: how many codes have each length, and the symbols in their order.
class Code {
 public:
  // False: more codes than there is room for, or fewer, but for one alone, which zlib writes too.
  bool make(uint8_t const* lengths, int number) {
    for (auto& each : counts_) each = 0;
    for (int i = 0; i < number; ++i) ++counts_[lengths[i]];
    int const codes = number - counts_[0];
    counts_[0] = 0;
    int left = 1;
    uint16_t offsets[kMaxBits + 2] = {};
    for (int length = 1; length <= kMaxBits; ++length) {
      left = 2 * left - counts_[length];
      if (left < 0) return false;
      offsets[length + 1] = static_cast<uint16_t>(offsets[length] + counts_[length]);
    }
    for (int i = 0; i < number; ++i) {
      if (lengths[i] != 0) symbols_[offsets[lengths[i]]++] = static_cast<uint16_t>(i);
    }
    return left == 0 || codes <= 1;
  }

  // -1: no such code.
  int decode(Bits& bits) const {
    int code = 0, first = 0, index = 0;
    for (int length = 1; length <= kMaxBits; ++length) {
      code |= static_cast<int>(bits.take(1));
      int const count = counts_[length];
      if (code - first < count) return symbols_[index + code - first];
      index += count;
      first = 2 * (first + count);
      code *= 2;
    }
    return -1;
  }

 private:
  uint16_t counts_[kMaxBits + 1] = {};
  uint16_t symbols_[288] = {};
};

struct Codes {
  Code literals, distances;

  bool make_fixed() {
    uint8_t lengths[288], distance_lengths[32];
    for (int i = 0; i < 288; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    for (auto& each : distance_lengths) each = 5;
    return literals.make(lengths, 288) && distances.make(distance_lengths, 32);
  }

  bool read_dynamic(Bits& bits) {
    static constexpr uint8_t kOrder[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                           11, 4,  12, 3, 13, 2, 14, 1, 15};
    auto const take = [&](int count) { return static_cast<int>(bits.take(count)); };
    int const literal_count = take(5) + 257, distance_count = take(5) + 1;
    int const length_count = take(4) + 4;
    if (literal_count > kLiterals || distance_count > kDistances) return false;
    uint8_t lengths[kLiterals + kDistances] = {};
    for (int i = 0; i < length_count; ++i) lengths[kOrder[i]] = static_cast<uint8_t>(take(3));
    Code code;
    if (!code.make(lengths, 19)) return false;
    for (auto& each : lengths) each = 0;
    int const count = literal_count + distance_count;
    for (int i = 0; i < count;) {
      int const symbol = code.decode(bits);
      if (symbol < 0 || !bits.is_good()) return false;
      if (symbol < 16) {
        lengths[i++] = static_cast<uint8_t>(symbol);
        continue;
      }
      if (symbol == 16 && i == 0) return false;
      uint8_t const repeated = symbol == 16 ? lengths[i - 1] : uint8_t{0};
      int const times = symbol == 16 ? 3 + take(2) : symbol == 17 ? 3 + take(3) : 11 + take(7);
      if (i + times > count) return false;
      for (int j = 0; j < times; ++j) lengths[i++] = repeated;
    }
    return lengths[kEnd] != 0 && literals.make(lengths, literal_count) &&
           distances.make(lengths + literal_count, distance_count);
  }
};

// False: damaged. `to` gets no more than `size` bytes.
bool unpack_block(Bits& bits, Codes const& codes, size_t size, std::string& to) {
  static constexpr uint16_t kLengths[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                            15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                            67, 83, 99, 115, 131, 163, 195, 227, 258};
  static constexpr uint8_t kLengthBits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                              2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  while (bits.is_good()) {
    int const symbol = codes.literals.decode(bits);
    if (symbol < 0 || symbol >= kLiterals) return false;
    if (symbol == kEnd) return bits.is_good();
    if (symbol < kEnd) {
      if (to.size() == size) return false;
      to += static_cast<char>(symbol);
      continue;
    }
    int const place = symbol - kEnd - 1;
    size_t const length = kLengths[place] + bits.take(kLengthBits[place]);
    int const code = codes.distances.decode(bits);
    if (code < 0 || code >= kDistances) return false;
    int const extra = code < 2 ? 0 : code / 2 - 1;
    size_t const first = code < 2 ? static_cast<size_t>(code) : size_t{2u + code % 2} << extra;
    size_t const distance = 1 + first + bits.take(extra);
    if (distance > to.size() || length > size - to.size()) return false;
    for (size_t i = 0; i < length; ++i) to += to[to.size() - distance];
  }
  return false;
}

bool unpack_stored(Bits& bits, size_t size, std::string& to) {
  std::string_view const header = bits.take_bytes(4);
  if (!bits.is_good()) return false;
  auto const number_at = [&](int i) {
    return static_cast<uint8_t>(header[i]) + 256u * static_cast<uint8_t>(header[i + 1]);
  };
  size_t const length = number_at(0);
  if (length != (~number_at(2) & 0xffff) || length > size - to.size()) return false;
  to += bits.take_bytes(length);
  return bits.is_good();
}

uint32_t sum_adler(std::string_view text) {
  uint32_t a = 1, b = 0;
  for (char const c : text) {
    a = (a + static_cast<uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

}  // namespace

std::optional<std::string> inflate(std::string_view packed, size_t size) {
  // Two bytes in front, four behind. No window of another size, and no dictionary of one's own.
  if (packed.size() < 6) return {};
  unsigned const method = static_cast<uint8_t>(packed[0]), flags = static_cast<uint8_t>(packed[1]);
  if (method != 0x78 || (method * 256 + flags) % 31 != 0 || (flags & 32) != 0) return {};
  Bits bits(packed.substr(2, packed.size() - 6));
  std::string to;
  to.reserve(size);
  for (bool is_last = false; !is_last;) {
    is_last = bits.take(1) == 1;
    unsigned const kind = bits.take(2);
    Codes codes;
    bool is_unpacked = false;
    if (kind == 0) is_unpacked = unpack_stored(bits, size, to);
    if (kind == 1) is_unpacked = codes.make_fixed() && unpack_block(bits, codes, size, to);
    if (kind == 2) is_unpacked = codes.read_dynamic(bits) && unpack_block(bits, codes, size, to);
    if (!is_unpacked || !bits.is_good()) return {};
  }
  uint32_t sum = 0;
  for (char const c : packed.substr(packed.size() - 4)) sum = sum << 8 | static_cast<uint8_t>(c);
  if (!bits.is_at_end() || to.size() != size || sum != sum_adler(to)) return {};
  return to;
}

}  // namespace cutlass_fused::link
