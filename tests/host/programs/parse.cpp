// Reads texts, a line of hexadecimal digits each, and prints for each why it was refused, or what
// was read as "parsed <operands>; <word> <argument>...; ...; return <argument>...". Numbers are
// printed by the bits of a double: "#3ff0000000000000".
#include <cstdio>
#include <iostream>

#include "cutlass_fused/program/parse.hpp"
#include "programs/read_text.hpp"

using namespace cutlass_fused::program;

std::string describe(std::vector<Argument> const& arguments) {
  std::string text;
  for (Argument const& argument : arguments) {
    char number[24];
    uint64_t bits;
    std::memcpy(&bits, &argument.number, sizeof bits);
    std::snprintf(number, sizeof number, "#%016llx", static_cast<unsigned long long>(bits));
    std::string const index = std::to_string(argument.index);
    text += argument.kind == Argument::kAcc       ? " acc"
            : argument.kind == Argument::kOperand ? " p" + index
            : argument.kind == Argument::kLine    ? " v" + index
                                                  : std::string(" ") + number;
  }
  return text;
}

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      Program const program = parse(read_text(line));
      std::cout << "parsed " << program.operands;
      for (Line const& each : program.lines) {
        std::cout << "; " << each.word->name << describe(each.arguments);
      }
      std::cout << "; return" << describe(program.outputs) << '\n';
    } catch (Malformed const& malformed) {
      std::cout << malformed.what() << '\n';
    }
  }
}
