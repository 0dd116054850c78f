// Reads texts of programs, a line of hexadecimal digits each; prints 1 where the first output is
// NaN wherever acc is, else 0.
#include <iostream>

#include "cutlass_fused/program/parse.hpp"
#include "cutlass_fused/program/propagates_nan.hpp"
#include "programs/read_text.hpp"

int main() {
  using namespace cutlass_fused::program;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << propagates_nan(parse(read_text(line))) << '\n';
  }
}
