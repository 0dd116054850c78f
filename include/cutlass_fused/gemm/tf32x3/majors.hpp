// For which orders of their operands tf32x3 kernels are compiled.
#pragma once

#include <type_traits>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

template <Major kMajor>
using MajorConstant = std::integral_constant<Major, kMajor>;

// call(MajorConstant of x, MajorConstant of weight). kNoKernel where operands do not lie along K,
// unless kAnyMajor.
template <bool kAnyMajor, class Call>
Status for_majors(Major x, Major weight, Call const& call) {
  using AlongK = MajorConstant<Major::kK>;
  using AlongMn = MajorConstant<Major::kMn>;
  if (x == Major::kK && weight == Major::kK) return call(AlongK{}, AlongK{});
  if constexpr (kAnyMajor) {
    if (x == Major::kK) return call(AlongK{}, AlongMn{});
    return weight == Major::kK ? call(AlongMn{}, AlongK{}) : call(AlongMn{}, AlongMn{});
  }
  return Status::kNoKernel;
}

}  // namespace cutlass_fused
