// Reads lines such as "8 float32:tile,bfloat16:row float16,sum:float32 70726f...": the elements of
// a piece, the inputs, the types of the outputs, of which "sum:" makes one over the rows, and a
// program in hexadecimal digits. Prints each as a kernel, for a host compiler behind "host", with a
// line "====" behind it. A program of rows has so many threads for each in front of it, as
// "64 8 ..."; 0 leaves both numbers to the plan, and prints them in front of the kernel.
#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>

#include "cutlass_fused/program/parse.hpp"
#include "cutlass_fused/program/pointwise.hpp"
#include "cutlass_fused/program/rows/print.hpp"
#include "programs/host_conversions.hpp"
#include "programs/read_text.hpp"

using namespace cutlass_fused::program;

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
    int threads = -1;
    if (std::count(line.begin(), line.end(), ' ') == 4) words >> threads;
    words >> pointwise.piece >> inputs >> outputs >> text;
    std::istringstream each(inputs);
    while (std::getline(each, part, ',')) {
      size_t const colon = part.find(':');
      pointwise.inputs.push_back(
          {kTypes.at(part.substr(0, colon)), kKinds.at(part.substr(colon + 1))});
    }
    std::istringstream types(outputs);
    while (std::getline(types, part, ',')) {
      size_t const colon = part.find(':');
      pointwise.outputs.push_back(kTypes.at(part.substr(colon + 1)));
      pointwise.sums.push_back(colon != std::string::npos);
    }
    Program const program = parse(read_text(text));
    if (threads >= 0) {
      Rows rows{pointwise.inputs, pointwise.outputs, pointwise.piece, threads};
      if (threads == 0) {
        std::vector<Memory> memories;
        for (Element const& input : pointwise.inputs) {
          bool const has_pieces = input.kind == Kind::kTile || input.kind == Kind::kRow;
          if (has_pieces) memories.push_back({input.type, 0, program.columns});
        }
        rows = make_rows(program, pointwise.inputs, pointwise.outputs, memories);
        std::cout << "// " << rows.threads << ' ' << rows.piece << ' ' << refuse_rows(program, rows)
                  << '\n';
      }
      std::cout << (for_host ? print_rows(program, rows, kHostConversions, false)
                             : print_rows(program, rows))
                << "====\n";
      continue;
    }
    std::cout << (for_host ? print_pointwise(program, pointwise, kHostConversions, false)
                           : print_pointwise(program, pointwise))
              << "====\n";
  }
}
