// Reads lines of types, a program's PTX and a kernel's, in hexadecimal digits, "-" for nothing;
// prints of each the kernel as it was filled, and as CUDA C++, or "none", with "====" behind
// either.
#include <iostream>
#include <sstream>

#include "link/open/fill_kernel.cpp"
#include "link/open/kernel_source.cpp"
#include "link/open/program_ptx.cpp"
#include "programs/read_text.hpp"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string types, program, kernel;
    words >> types >> program >> kernel;
    auto const filled = cutlass_fused::link::fill_kernel(
        kernel == "-" ? "" : read_text(kernel), program == "-" ? "" : read_text(program), types);
    std::string const source = filled ? cutlass_fused::link::make_kernel_source(*filled) : "";
    std::cout << (filled ? *filled : "none") << "\n====\n"
              << (source.empty() ? "none" : source) << "\n====\n";
  }
}
