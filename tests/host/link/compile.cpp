// Reads lines of an architecture and a source in hexadecimal digits; prints of each the size of the
// machine code, whether the cache had it, the first bytes, how many milliseconds it took, and what
// failed, a line each, with "====" behind.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "link/kept/common_kernels.cpp"
#include "link/compile.cpp"
#include "link/kept/disk_cache.cpp"
#include "link/nvrtc.cpp"
#include "link/open/inflate.cpp"
#include "link/open/sha256.cpp"
#include "programs/read_text.hpp"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string arch, source;
    words >> arch >> source;
    auto const start = std::chrono::steady_clock::now();
    auto const compiled = cutlass_fused::link::compile(read_text(source), arch);
    std::chrono::duration<double, std::milli> const took = std::chrono::steady_clock::now() - start;
    std::cout << compiled->code.size() << '\n'
              << (compiled->is_kept ? "kept" : "new") << '\n'
              << (compiled->code.substr(0, 4) ==
                          "\x7f"
                          "ELF"
                      ? "ELF"
                      : "other")
              << '\n'
              << took.count() << '\n'
              << compiled->error << '\n'
              << compiled->cache_error << "\n====\n";
  }
}
