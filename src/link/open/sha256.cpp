#include "link/open/sha256.hpp"

#include <cstdint>
#include <cstring>

namespace cutlass_fused::link {
namespace {

constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr size_t kBlock = 64;

uint32_t rotate(uint32_t x, int count) { return x >> count | x << (32 - count); }

void add_block(char const* block, uint32_t (&state)[8]) {
  uint32_t words[64];
  for (int i = 0; i < 16; ++i) {
    words[i] = 0;
    for (int j = 0; j < 4; ++j) words[i] = words[i] << 8 | static_cast<uint8_t>(block[4 * i + j]);
  }
  for (int i = 16; i < 64; ++i) {
    uint32_t const a = words[i - 15], b = words[i - 2];
    words[i] = words[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + words[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    uint32_t const first = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                           ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
    uint32_t const second =
        (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  uint32_t const added[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += added[i];
}

}  // namespace

std::string sha256(std::string_view text) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  size_t const whole = text.size() / kBlock * kBlock;
  for (size_t at = 0; at < whole; at += kBlock) add_block(text.data() + at, state);
  // What is left, a bit, zeros, and the number of bits: one block or two.
  char last[2 * kBlock] = {};
  size_t const rest = text.size() - whole;
  std::memcpy(last, text.data() + whole, rest);
  last[rest] = static_cast<char>(0x80);
  size_t const size = rest + 9 <= kBlock ? kBlock : 2 * kBlock;
  uint64_t const bits = 8 * uint64_t{text.size()};
  for (int i = 0; i < 8; ++i) last[size - 1 - i] = static_cast<char>(bits >> 8 * i);
  for (size_t at = 0; at < size; at += kBlock) add_block(last + at, state);
  std::string sum;
  for (uint32_t const word : state) {
    for (int shift = 24; shift >= 0; shift -= 8) sum += static_cast<char>(word >> shift);
  }
  return sum;
}

std::string read_sum(std::string_view digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr size_t kBytes = 32;
  if (digits.size() != 2 * kBytes) return {};
  std::string sum;
  for (size_t i = 0; i < digits.size(); i += 2) {
    size_t const high = kDigits.find(digits[i]), low = kDigits.find(digits[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return {};
    sum += static_cast<char>(high << 4 | low);
  }
  return sum;
}

}  // namespace cutlass_fused::link
