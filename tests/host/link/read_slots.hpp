// The operands and the outputs of a program from words of a line.
//   bfloat16:row,float32:tile=      "=": a tile that lies as y does; "-": there are none
//   float16,float32                 the types of the outputs
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "cutlass_fused/program/slots.hpp"

inline cutlass_fused::program::Type read_type(std::string const& name) {
  using cutlass_fused::program::Type;
  return name == "float32" ? Type::kFloat32 : name == "float16" ? Type::kFloat16 : Type::kBFloat16;
}

inline std::vector<std::string> split_list(std::string const& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

inline std::vector<cutlass_fused::program::OpenOperand> read_operands(std::string const& text) {
  using cutlass_fused::program::Kind;
  std::vector<cutlass_fused::program::OpenOperand> operands;
  for (std::string part : split_list(text == "-" ? "" : text)) {
    bool const lies_as_y = part.back() == '=';
    if (lies_as_y) part.pop_back();
    size_t const colon = part.find(':');
    std::string const kind = part.substr(colon + 1);
    Kind const found = kind == "scalar"   ? Kind::kScalar
                       : kind == "row"    ? Kind::kRow
                       : kind == "column" ? Kind::kColumn
                                          : Kind::kTile;
    operands.push_back({{read_type(part.substr(0, colon)), found}, lies_as_y});
  }
  return operands;
}

inline std::vector<cutlass_fused::program::Type> read_outputs(std::string const& text) {
  std::vector<cutlass_fused::program::Type> types;
  for (std::string const& name : split_list(text)) types.push_back(read_type(name));
  return types;
}
