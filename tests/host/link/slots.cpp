// Reads lines of
//   LOADS_BY_TMA OPERANDS OUTPUTS PROGRAM
// (read_slots.hpp; the program in hexadecimal digits, or "-"); prints the slots of the operands and
// the types, or "none", and of a program the source around it; "====" behind.
#include <iostream>

#include "cutlass_fused/program/parse.hpp"
#include "link/read_slots.hpp"
#include "programs/read_text.hpp"

int main() {
  namespace program = cutlass_fused::program;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    bool loads_by_tma = false;
    std::string operands, outputs, text;
    words >> loads_by_tma >> operands >> outputs >> text;
    auto const slots =
        program::choose_slots(read_operands(operands), read_outputs(outputs), loads_by_tma);
    if (slots) {
      for (int const slot : slots->of_operands) std::cout << slot << ' ';
      std::cout << slots->types << '\n';
      if (text != "-") std::cout << print_in_slots(program::parse(read_text(text)), *slots);
    } else {
      std::cout << "none\n";
    }
    std::cout << "====\n";
  }
}
