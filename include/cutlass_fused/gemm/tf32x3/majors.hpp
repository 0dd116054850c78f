// For which orders of their operands tf32x3 kernels are compiled.
#pragma once

#include <type_traits>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

template <Major kMajor>
using MajorConstant = std::integral_constant<Major, kMajor>;

// Whether a product of a layer or of its gradients has operands of this order: all but x along M
// beside a weight along K.
constexpr bool is_of_layers(Major x, Major weight) {
  return x == Major::kK || weight == Major::kMn;
}

// call(MajorConstant of x, MajorConstant of weight). kNoKernel where operands do not lie along K,
// unless kAnyMajor; with kOfLayers also for the order that none of these has.
template <bool kAnyMajor, bool kOfLayers = false, class Call>
Status for_majors(Major x, Major weight, Call const& call) {
  using AlongK = MajorConstant<Major::kK>;
  using AlongMn = MajorConstant<Major::kMn>;
  if (x == Major::kK && weight == Major::kK) return call(AlongK{}, AlongK{});
  if constexpr (kAnyMajor) {
    if (x == Major::kK) return call(AlongK{}, AlongMn{});
    if (weight == Major::kMn) return call(AlongMn{}, AlongMn{});
    if constexpr (!kOfLayers) return call(AlongMn{}, AlongK{});
  }
  return Status::kNoKernel;
}

}  // namespace cutlass_fused
