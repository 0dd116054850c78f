// What a map of normalization.hpp has for the columns of a piece.
#pragma once

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/norm/normalization.hpp"

namespace cutlass_fused {

template <class Map, int kWidth>
__device__ __forceinline__ void fetch_piece(Map const& map, int64_t n,
                                            typename Map::Raw (&to)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] = map.fetch(n + i);
}

template <int kWidth>
__device__ __forceinline__ void fetch_piece(UniformNormalization const& map, int64_t n,
                                            UniformNormalization::Raw (&to)[kWidth]) {
  auto const fetch = [&](float const* vector, auto const& put) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      float4 const four = *reinterpret_cast<float4 const*>(vector + n + i);
      put(i, four.x), put(i + 1, four.y), put(i + 2, four.z), put(i + 3, four.w);
    }
  };
  fetch(map.mean, [&](int i, float mean) { to[i].mean = mean; });
  fetch(map.a, [&](int i, float a) { to[i].a = a; });
  fetch(map.d, [&](int i, float d) { to[i].d = d; });
}

// Whether a merge has stored a column of the piece anew: BehindKernel::moved.
template <int kWidth, Access kAccess>
__device__ __forceinline__ bool was_moved(int const* moved, Piece<kWidth, kAccess> const& piece,
                                          int columns) {
  if (moved == nullptr) return false;
  if constexpr (kAccess == Access::kAligned || kAccess == Access::kWhole) {
    static_assert(kColumnsOfMerge % kWidth == 0);
    return piece.is_whole(columns) && moved[piece.first / kColumnsOfMerge] != 0;
  }
  bool any = false;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (piece.holds(i, columns)) any |= moved[piece.column(i) / kColumnsOfMerge] != 0;
  }
  return any;
}

// To ask for the columns of all pieces, and to convert them, are two steps: none is waited for
// before the others have been asked for.
template <class Map, int kWidth, Access kAccess>
__device__ __forceinline__ void fetch_columns(Map const& map, Piece<kWidth, kAccess> const& piece,
                                              int columns, typename Map::Raw (&raw)[kWidth]) {
  if constexpr (kAccess == Access::kAligned || kAccess == Access::kWhole) {
    if (piece.is_whole(columns)) fetch_piece(map, piece.first, raw);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (piece.holds(i, columns)) raw[i] = map.fetch(piece.column(i));
    }
  }
}

template <class Map, int kWidth, Access kAccess>
__device__ __forceinline__ void convert_columns(Map const& map, Piece<kWidth, kAccess> const& piece,
                                                int columns, typename Map::Raw const (&raw)[kWidth],
                                                typename Map::Column (&to)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (piece.holds(i, columns)) to[i] = map.convert(raw[i]);
  }
}

}  // namespace cutlass_fused
