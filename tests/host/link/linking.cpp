// linking CAPTURING LINKED: what a call says that has a program to link, in a capture or not, with
// the program linked on disk or not; and, on stderr, of one error twice and of another once.
#include <cstring>
#include <iostream>

#include "launch/programs/linking.cpp"

static bool is_in_capture = false;

bool cutlass_fused::is_capturing(Device const&) { return is_in_capture; }

int main(int, char** arguments) {
  using namespace cutlass_fused;
  is_in_capture = std::strcmp(arguments[1], "1") == 0;
  bool const is_linked = std::strcmp(arguments[2], "1") == 0;
  int asked = 0;
  try {
    check_capture("op", Device{}, "of the same sizes", [&] { return ++asked, is_linked; });
    std::cout << "linked, asked " << asked << '\n';
  } catch (std::exception const& error) {
    std::cout << error.what() << '\n';
  }
  for (char const* error : {"no compiler", "no compiler", "no luck"}) {
    warn_of_link("op", "runs behind its product", error);
  }
}
