// DataType as CUTLASS's element types.
#pragma once

#include "cutlass/numeric_types.h"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

template <DataType>
struct ElementOf;
template <>
struct ElementOf<DataType::kFloat32> {
  using type = float;
};
template <>
struct ElementOf<DataType::kFloat16> {
  using type = cutlass::half_t;
};
template <>
struct ElementOf<DataType::kBFloat16> {
  using type = cutlass::bfloat16_t;
};

}  // namespace cutlass_fused
