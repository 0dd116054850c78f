// Reads commands, a line each, and prints the answer to each:
//   find <13 numbers>    the value of that key: "made <value>" or "kept <value>"; values count up
//   refuse <13 numbers>  the same, but nothing can be made: "none" or "kept <value>"
//   key <m> <n> <k> <x> <ldx> <weight> <ldw> <y> <ldy> <type of y> <direction> <count> <device>
//                        the key of that launch
#include <iostream>
#include <sstream>
#include <string>

#include "cutlass_fused/common/memo.hpp"

using namespace cutlass_fused;

void find(std::istream& in, bool can_make) {
  static Memo<int> memo;
  static int made = 0;
  LaunchKey key;
  for (int64_t& word : key) in >> word;
  int const before = made;
  int const* const value = memo.find(key, [&](int& value) {
    value = ++made;
    return can_make;
  });
  if (value == nullptr) {
    std::cout << "none";
  } else {
    std::cout << (made > before ? "made " : "kept ") << *value;
  }
}

void make_key(std::istream& in) {
  GemmArgs gemm{};
  uintptr_t x, weight, y, data;
  int type, direction;
  Raster raster;
  Device device{};
  Source source;
  in >> gemm.m >> gemm.n >> gemm.k >> x >> gemm.ldx >> weight >> gemm.ldw >> y >> gemm.ldy >>
      type >> direction >> raster.count >> device.index >> data >> source.ld;
  gemm.x = reinterpret_cast<void const*>(x);
  gemm.weight = reinterpret_cast<void const*>(weight);
  gemm.y = reinterpret_cast<void*>(y);
  source.data = reinterpret_cast<void const*>(data);
  gemm.y_type = DataType(type);
  raster.direction = static_cast<decltype(raster.direction)>(direction);
  for (int64_t word : make_launch_key(gemm, raster, device, source)) std::cout << word << ' ';
}

int main() {
  std::string line, command;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    in >> command;
    if (command == "key") {
      make_key(in);
    } else {
      find(in, command == "find");
    }
    std::cout << std::endl;
  }
}
