// Splits numbers as a thread does, on the host. Of each line "<has lo> <bits of the row's largest
// number> <bits of 8 numbers>" it prints the bits of hi and of lo, the units that were lost, and
// the bits of the row's scale if it lost nothing else.
#include <cstdio>
#include <iostream>

#include "gpu_functions.hpp"

using namespace cutlass_fused;

template <bool kLow>
void split_piece(unsigned largest) {
  float from[kSplitWidth];
  for (float& number : from) {
    unsigned bits;
    std::cin >> bits;
    number = __uint_as_float(bits);
  }
  alignas(16) __half to[kSplitWidth + SplitLayout::kBlock] = {};
  RowPower const power(largest);
  Loss<kLow> lost;
  store_piece(from, RowSplit<kLow>(power), to, lost);
  print_parts<kLow>(to);
  RowScale const scale = Loss<kLow>::make_scale(power, lost.units());
  std::printf("%u %u\n", lost.units(), __float_as_uint(scale.packed));
}

int main() {
  unsigned has_low, largest;
  while (std::cin >> has_low >> largest)
    (has_low ? split_piece<true> : split_piece<false>)(largest);
}
