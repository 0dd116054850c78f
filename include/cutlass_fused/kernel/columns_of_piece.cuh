// What a map of normalization.hpp has for the columns of a piece.
#pragma once

#include "cutlass_fused/kernel/piece.cuh"
#include "cutlass_fused/normalization.hpp"

namespace cutlass_fused {

// All columns are asked for before one is waited for.
template <class Map, int kWidth, Access kAccess>
__device__ __forceinline__ void load_columns(Map const& map, Piece<kWidth, kAccess> const& piece,
                                             int columns, typename Map::Column (&to)[kWidth]) {
  typename Map::Raw raw[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (piece.holds(i, columns)) raw[i] = map.fetch(piece.column(i));
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (piece.holds(i, columns)) to[i] = map.convert(raw[i]);
  }
}

}  // namespace cutlass_fused
