// Reads lines "<rows> <columns> <element bytes> <SMs>" and prints, for each, how many ranges of how
// many rows there are, and the bytes of their statistics.
#include <iostream>

#include "cutlass_fused/norm/ranges.hpp"

using namespace cutlass_fused;

int main() {
  Matrix x{};
  Device device{};
  int element_bytes;
  while (std::cin >> x.rows >> x.columns >> element_bytes >> device.sm_count) {
    x.type = element_bytes == 4 ? DataType::kFloat32 : DataType::kBFloat16;
    Ranges const ranges = choose_ranges(x, device);
    std::cout << ranges.count << ' ' << ranges.rows_per_range << ' ' << ranges.bytes(x.columns)
              << std::endl;
  }
}
