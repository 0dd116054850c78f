// Reads texts of programs, a line of hexadecimal digits each, and prints each as CUDA C++, with a
// line "====" behind it. Of the line "words" it prints the table: "<name> <signature>". Behind
// "for_16_bits" and "host_for_16_bits" programs are for results of 16 bits. Behind those with
// "host" they are without the instructions that tests/host/programs/instructions.hpp has.
#include <iostream>

#include "cutlass_fused/program/parse.hpp"
#include "cutlass_fused/program/print.hpp"
#include "programs/read_text.hpp"

using namespace cutlass_fused::program;

int main() {
  std::string line;
  Arithmetic arithmetic = Arithmetic::kAsPyTorch;
  bool has_instructions = true;
  while (std::getline(std::cin, line)) {
    if (line == "words") {
      for (Word const& word : kWords) std::cout << word.name << ' ' << word.signature << '\n';
    } else if (line == "host" || line == "for_16_bits" || line == "host_for_16_bits") {
      arithmetic = line == "host" ? Arithmetic::kAsPyTorch : Arithmetic::kFor16Bits;
      has_instructions = line == "for_16_bits";
    } else {
      std::cout << print(parse(read_text(line)), arithmetic, has_instructions) << "====\n";
    }
  }
}
