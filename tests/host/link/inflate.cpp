// Reads lines of a size and of packed bytes in hexadecimal digits; prints "none", or a sum of what
// they are unpacked.
#include <iostream>
#include <sstream>

#include "link/open/inflate.cpp"
#include "link/open/sha256.cpp"
#include "programs/read_text.hpp"

static void print_hex(std::string const& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (unsigned char const c : text) std::cout << kDigits[c / 16] << kDigits[c % 16];
}

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    size_t size = 0;
    std::string packed;
    words >> size >> packed;
    auto const text = cutlass_fused::link::inflate(read_text(packed), size);
    if (text) {
      print_hex(cutlass_fused::link::sha256(*text));
    } else {
      std::cout << "none";
    }
    std::cout << '\n';
  }
}
