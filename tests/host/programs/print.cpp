// Reads texts of programs, a line of hexadecimal digits each, and prints each as CUDA C++, with a
// line "====" behind it. Of the line "words" it prints the table: "<name> <signature>".
#include <iostream>

#include "cutlass_fused/program/parse.hpp"
#include "cutlass_fused/program/print.hpp"
#include "programs/read_text.hpp"

using namespace cutlass_fused::program;

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "words") {
      for (Word const& word : kWords) std::cout << word.name << ' ' << word.signature << '\n';
    } else {
      std::cout << print(parse(read_text(line))) << "====\n";
    }
  }
}
