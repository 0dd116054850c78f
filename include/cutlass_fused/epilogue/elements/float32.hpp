// Operands all of whose vectors are of fp32: a kernel that is compiled for these says so first, and
// the compiler leaves no branch of another type.
#pragma once

#include <type_traits>

#include "cutlass_fused/epilogue/elements/evaluate.hpp"
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"

namespace cutlass_fused {

// fn(vector) of each vector that an operand reads.
template <class Source, class Fn>
CUTLASS_FUSED_HOST_DEVICE void for_each_vector(Source const& source, Fn const& fn) {
  if constexpr (std::is_same_v<Source, Vector>) fn(source);
  if constexpr (std::is_same_v<Source, ScaledVector>) fn(source.scale);
  if constexpr (std::is_same_v<Source, BatchNormScale>) fn(source.gamma), fn(source.var);
}

template <class Operand, class... Rest, class Fn>
CUTLASS_FUSED_HOST_DEVICE void for_each_vector(Pack<Operand, Rest...> const& pack, Fn const& fn) {
  for_each_vector(pack.first, fn);
  if constexpr (sizeof...(Rest) > 0) for_each_vector(pack.rest, fn);
}

template <class Arguments>
bool is_float32(Arguments const& operands) {
  bool all = true;
  for_each_vector(operands,
                  [&](Vector const& vector) { all &= vector.type == DataType::kFloat32; });
  return all;
}

struct AssumeFloat32 {
  __device__ void operator()(Vector const& vector) const {
    __builtin_assume(vector.type == DataType::kFloat32);
  }
};

}  // namespace cutlass_fused
