// open_kernels FILE ...: of each, what is wrong, or its kernels: of each a line with its name, its
// architecture, the bytes of its parameter, and the text as it is read; and "====" behind.
#include <iostream>

#include "link/open/inflate.cpp"
#include "link/open/open_kernels.cpp"
#include "link/open/sha256.cpp"

int main(int count, char** arguments) {
  using namespace cutlass_fused::link;
  for (int i = 1; i < count; ++i) {
    OpenKernels const kernels = read_open_kernels(arguments[i]);
    if (!kernels.error().empty()) std::cout << kernels.error() << '\n';
    for (auto const& [name, kernel] : kernels.all()) {
      auto const text = unpack(kernel.text);
      std::cout << name << ' ' << kernel.arch << ' ' << kernel.param_bytes << ' '
                << (text ? *text : "damaged") << '\n';
    }
    std::cout << "====\n";
  }
}
