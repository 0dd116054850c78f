// The kernel type of an open kernel for every GPU.
#pragma once

#include "cutlass_fused/epilogue/open/nodes_sm80.hpp"
#include "cutlass_fused/gemm/sm80/kernel.hpp"

namespace cutlass_fused {

// The kIndexth tile of a list.
template <class List, int kIndex>
struct TileAtSm80;
template <class... Rows, int kIndex>
struct TileAtSm80<TileList<Rows...>, kIndex> {
  using type = typename std::tuple_element_t<kIndex, std::tuple<Rows...>>::type;
};

template <class Math, int kIndex>
struct OpenSm80 {
  static constexpr int kAlignmentBytes = 16;
  using Tile = typename TileAtSm80<typename TilesSm80For<Math>::type, kIndex>::type;
  using Epilogue = std::conditional_t<splits_rows(Math::kEngine), Unscaled<Open>, Open>;
  using Gemm = GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>;
};
template <class Math, int kIndex>
using OpenGemmSm80 = typename OpenSm80<Math, kIndex>::Gemm;

}  // namespace cutlass_fused
