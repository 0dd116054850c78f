// The kernel type of an open kernel for SM90: which tiles read a source.
#pragma once

#include "cutlass_fused/epilogue/open/source_sm90.hpp"

namespace cutlass_fused {

// The kIndexth tile of a list.
template <class List, int kIndex>
struct TileAtSm90;
template <class... Rows, int kIndex>
struct TileAtSm90<TileListSm90<Rows...>, kIndex> {
  using type = typename std::tuple_element_t<kIndex, std::tuple<Rows...>>::type;
};

// A source asks for rows that TMA writes, and takes a stage of the operands of 128x192.
template <class Tile>
constexpr bool reads_source_sm90 =
    Tile::kOutput == Output::kTma &&
    !(Tile::kM == 128 && Tile::kN == 192 && Tile::kOperands == Operands::kPlain);

template <class Math, int kIndex>
struct OpenSm90 {
  using Tile = typename TileAtSm90<typename TilesSm90For<Math>::type, kIndex>::type;
  static constexpr bool kReadsSource = reads_source_sm90<Tile>;
  using Read = std::conditional_t<kReadsSource, OpenSource, Open>;
  using Epilogue = std::conditional_t<splits_rows(Math::kEngine), Unscaled<Read>, Read>;
  using Gemm = GemmSm90<Tile, Math, Epilogue>;
};
template <class Math, int kIndex>
using OpenGemmSm90 = typename OpenSm90<Math, kIndex>::Gemm;

}  // namespace cutlass_fused
