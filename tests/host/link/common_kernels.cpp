// common_kernels FILE: prints how many kernels the pack has, or why none; then reads keys, a line
// each, and prints "= CONTENT" or "none"; "beside KEY" is of the pack beside this program.
#include <iostream>

#include "link/kept/common_kernels.cpp"
#include "link/open/inflate.cpp"
#include "link/open/sha256.cpp"

int main(int, char** arguments) {
  using namespace cutlass_fused::link;
  auto const kernels = read_common_kernels(arguments[1]);
  if (kernels.error().empty()) {
    std::cout << kernels.size() << '\n';
  } else {
    std::cout << kernels.error() << '\n';
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    bool const is_beside = line.rfind("beside ", 0) == 0;
    auto const found = is_beside ? find_common_kernels().read(line.substr(7)) : kernels.read(line);
    std::cout << (found ? "= " + *found : "none") << '\n';
  }
}
