// Reads the operands of one column from a line: "<element type> <value>" for a vector, or a number.
#pragma once

#include <cmath>
#include <iostream>
#include <string>

#include "cutlass_fused/common/types.hpp"

using cutlass_fused::DataType;
using cutlass_fused::Vector;

// The column under test is the second of two, each vector but a "plain" one has a stride of two,
// and every other element is NaN: a functor that reads a wrong place is noticed.
constexpr int kColumn = 1;

struct VectorStorage {
  alignas(16) float values[4];
  __half half_values[4];
  __nv_bfloat16 bfloat_values[4];
};

inline Vector read_vector(VectorStorage& storage) {
  std::string type;
  std::string text;
  std::cin >> type >> text;
  float const value = std::stof(text);
  int const stride = type == "plain" ? 1 : 2;
  for (int i = 0; i < 4; ++i) {
    float const element = i == stride * kColumn ? value : NAN;
    storage.values[i] = element;
    storage.half_values[i] = __float2half_rn(element);
    storage.bfloat_values[i] = __float2bfloat16_rn(element);
  }
  if (type == "absent") return Vector::constant(value);
  if (type == "float16") return {storage.half_values, 2, DataType::kFloat16, 0.0f};
  if (type == "bfloat16") return {storage.bfloat_values, 2, DataType::kBFloat16, 0.0f};
  if (type == "one") return {storage.values + 2, 0, DataType::kFloat32, 0.0f};
  return {storage.values, stride, DataType::kFloat32, 0.0f};
}

inline float read_number() {
  std::string text;
  std::cin >> text;
  return std::stof(text);
}
