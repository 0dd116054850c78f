// Splits rows of 8 numbers, each of which is multiplied by a power of two of its k before, on the
// host. Of each line "<has lo> <bits of 8 numbers> <bits of 8 scales>" it prints the bits of hi and
// of lo, the units that were lost, and the bits of the row's scale.
#include <cstdio>
#include <iostream>

#include "gpu_functions.hpp"

using namespace cutlass_fused;

float read_float() {
  unsigned bits;
  std::cin >> bits;
  return __uint_as_float(bits);
}

template <bool kLow>
void split_row() {
  float from[kSplitWidth];
  for (float& number : from) number = read_float();
  RowScale scales[kSplitWidth];
  for (RowScale& scale : scales) scale.packed = read_float();
  Folded const folded(scales[0]);
  unsigned largest = 0;
  float others = 0.0f;
  bool is_cut = false;
  for (int i = 0; i < kSplitWidth; ++i) {
    from[i] = Folded::multiply(from[i], folded.ratio(scales[i]), is_cut);
    largest = max(largest, magnitude(from[i]));
    others += scales[i].least();
  }
  RowPower const power(largest);
  alignas(16) __half to[kSplitWidth + SplitLayout::kBlock] = {};
  Loss<kLow> lost;
  store_piece(from, RowSplit<kLow>(power), to, lost);
  print_parts<kLow>(to);
  uint64_t const units = lost.units() + Loss<kLow>::units_of(others) +
                         (is_cut ? kSplitWidth * Loss<kLow>::units_of_cut(power) : 0);
  RowScale const scale = Loss<kLow>::make_scale(folded.find_row(power), units);
  std::printf("%llu %u\n", static_cast<unsigned long long>(units), __float_as_uint(scale.packed));
}

int main() {
  for (unsigned has_low; std::cin >> has_low;) (has_low ? split_row<true> : split_row<false>)();
}
