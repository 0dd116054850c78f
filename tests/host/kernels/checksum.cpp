// The checksum of the words on standard input, as two numbers without a sign, and how many numbers
// its state has. The first number there says in which order: 0 from the first word, 1 from the last.
#include <cstdio>
#include <iostream>
#include <vector>

#include "cutlass_fused/gemm/fp16x3_kept/checksum.hpp"

using namespace cutlass_fused;

int main() {
  bool backwards;
  std::cin >> backwards;
  std::vector<uint32_t> words;
  for (uint32_t word; std::cin >> word;) words.push_back(word);
  Checksum sum{}, other{};
  for (size_t i = 0; i < words.size(); ++i) {
    size_t const at = backwards ? words.size() - 1 - i : i;
    (i % 3 == 0 ? other : sum).add(words[at], uint32_t(at));
  }
  sum.add(other);
  std::printf("%llu %llu %lld\n", static_cast<unsigned long long>(sum.products),
              static_cast<unsigned long long>(sum.words), static_cast<long long>(kChecksumWords));
}
