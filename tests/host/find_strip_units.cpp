// Reads lines "<rows> <columns>" and prints, for each, all units of normalize_strips in their order
// as "<strip> <part> <merges>", and "end".
#include <iostream>

#include "cutlass_fused/norm/strip_units.hpp"

using namespace cutlass_fused;

int main() {
  int64_t rows, columns;
  while (std::cin >> rows >> columns) {
    StripUnits const units = StripUnits::make(rows, columns);
    for (int i = 0; i < units.count(); ++i) {
      auto const unit = units.find(i);
      std::cout << unit.strip << ' ' << unit.part << ' ' << unit.merges << '\n';
    }
    std::cout << "end" << std::endl;
  }
}
