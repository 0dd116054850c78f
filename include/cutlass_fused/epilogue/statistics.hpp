// What an epilogue's tree becomes that also finds the statistics of its columns.
#pragma once

namespace cutlass_fused {

// What stands behind the tree of another epilogue: hands on its results, and sums them up.
template <class Tree>
struct StatisticsTree {};

}  // namespace cutlass_fused
