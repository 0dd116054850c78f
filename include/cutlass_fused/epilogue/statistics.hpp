// What an epilogue's tree becomes that also finds the statistics of its columns.
#pragma once

#include "cutlass_fused/epilogue/unscaled.hpp"

namespace cutlass_fused {

// What stands behind the tree of another epilogue: sums up its results, and hands them on: less the
// tile's shift where `kShifted`, as all that becomes 16 bits does.
//
// The mean of a column must be that of what is normalized. Rounded to 16 bits, z is up to 2^-9 of
// its mean away from where it was, which may be many times its deviation; less a shift near the
// mean it is not.
template <class Tree, bool kShifted>
struct StatisticsTree {};

// Behind scaled rows z is of fp32.
template <class Epilogue>
constexpr bool kShiftsZ = true;
template <class Epilogue>
constexpr bool kShiftsZ<Unscaled<Epilogue>> = false;

}  // namespace cutlass_fused
