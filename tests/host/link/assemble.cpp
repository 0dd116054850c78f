// assemble PACK FOLDER: reads lines of
//   KERNEL COMPUTE_CAPABILITY LOADS_BY_TMA OPERANDS OUTPUTS PROGRAM
// (read_slots.hpp; the program in hexadecimal digits). Writes each kernel's machine code as
// FOLDER/<number of the line>.cubin, and prints "no room", or its name, the bytes of its parameter,
// "kept" or "new", how many milliseconds it took, and what failed; "====" behind.
#include <chrono>
#include <fstream>
#include <iostream>

#include "cutlass_fused/program/parse.hpp"
#include "link/kept/common_kernels.cpp"
#include "link/compile.cpp"
#include "link/kept/disk_cache.cpp"
#include "link/nvrtc.cpp"
#include "link/open/assemble.cpp"
#include "link/open/fill_kernel.cpp"
#include "link/open/inflate.cpp"
#include "link/open/kernel_source.cpp"
#include "link/open/open_kernels.cpp"
#include "link/open/program_ptx.cpp"
#include "link/open/sha256.cpp"
#include "link/read_slots.hpp"
#include "programs/read_text.hpp"

int main(int, char** arguments) {
  namespace program = cutlass_fused::program;
  auto const kernels = cutlass_fused::link::read_open_kernels(arguments[1]);
  std::string line;
  for (int i = 0; std::getline(std::cin, line); ++i) {
    std::istringstream words(line);
    bool loads_by_tma = false;
    std::string kernel, operands, outputs, text;
    int compute_capability = 0;
    words >> kernel >> compute_capability >> loads_by_tma >> operands >> outputs >> text;
    auto const slots =
        program::choose_slots(read_operands(operands), read_outputs(outputs), loads_by_tma);
    if (!slots) {
      std::cout << "no room\n====\n";
      continue;
    }
    auto const start = std::chrono::steady_clock::now();
    auto const made = cutlass_fused::link::assemble(
        kernels, kernel, program::parse(read_text(text)), *slots, compute_capability);
    std::chrono::duration<double, std::milli> const took = std::chrono::steady_clock::now() - start;
    std::string const path = std::string(arguments[2]) + '/' + std::to_string(i) + ".cubin";
    std::ofstream(path, std::ios::binary) << made->cubin;
    std::cout << made->name << '\n'
              << made->param_bytes << '\n'
              << (made->is_kept ? "kept" : "new") << '\n'
              << took.count() << '\n'
              << made->error << "\n====\n";
  }
}
