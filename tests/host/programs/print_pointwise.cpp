// Reads lines such as "8 float32:tile,bfloat16:row float16,float32 70726f...": the elements of a
// piece, the inputs, the types of the outputs, and a program in hexadecimal digits. Prints each as
// a kernel, for a host compiler behind "host", with a line "====" behind it.
#include <iostream>
#include <map>
#include <sstream>

#include "cutlass_fused/program/parse.hpp"
#include "cutlass_fused/program/pointwise.hpp"
#include "programs/read_text.hpp"

using namespace cutlass_fused::program;

constexpr char kHostConversions[] = R"(
struct Half { _Float16 value; };
struct BFloat { unsigned short bits; };
inline float to_float(float x) { return x; }
inline float to_float(Half x) { return float(x.value); }
inline float to_float(BFloat x) { return __int_as_float(unsigned(x.bits) << 16); }
inline void round_to(float& y, float x) { y = x; }
inline void round_to(Half& y, float x) { y.value = _Float16(x); }
inline void round_to(BFloat& y, float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  y.bits = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
)";

static std::map<std::string, Type> const kTypes = {
    {"float32", Type::kFloat32}, {"float16", Type::kFloat16}, {"bfloat16", Type::kBFloat16}};
static std::map<std::string, Kind> const kKinds = {{"scalar", Kind::kScalar},
                                                   {"row", Kind::kRow},
                                                   {"column", Kind::kColumn},
                                                   {"tile", Kind::kTile}};

int main() {
  std::string line;
  bool for_host = false;
  while (std::getline(std::cin, line)) {
    if (line == "host") {
      for_host = true;
      continue;
    }
    std::istringstream words(line);
    Pointwise pointwise;
    std::string inputs, outputs, text, part;
    words >> pointwise.piece >> inputs >> outputs >> text;
    std::istringstream each(inputs);
    while (std::getline(each, part, ',')) {
      size_t const colon = part.find(':');
      pointwise.inputs.push_back(
          {kTypes.at(part.substr(0, colon)), kKinds.at(part.substr(colon + 1))});
    }
    std::istringstream types(outputs);
    while (std::getline(types, part, ',')) pointwise.outputs.push_back(kTypes.at(part));
    Program const program = parse(read_text(text));
    std::cout << (for_host ? print_pointwise(program, pointwise, kHostConversions, false)
                           : print_pointwise(program, pointwise))
              << "====\n";
  }
}
