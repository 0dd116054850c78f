// The elements of 16 bytes, as the words that they are loaded in: for rows in shared memory, which
// are unpacked again on every pass.
#pragma once

#include <type_traits>

#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/common/store.cuh"

namespace cutlass_fused {

// Words are taken apart as a whole: element by element each would take instructions of its own.
template <DataType kType>
__device__ __forceinline__ void unpack(uint4 const& piece, float (&v)[kPieceWidth<kType>]) {
  unsigned const words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DataType::kFloat32) {
      v[i] = __uint_as_float(words[i]);
    } else if constexpr (kType == DataType::kBFloat16) {
      v[2 * i] = __uint_as_float(words[i] << 16);
      v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      float2 const pair = __half22float2(reinterpret_cast<__half2 const&>(words[i]));
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
  }
}

template <DataType kType>
__device__ __forceinline__ uint4 pack(float const (&v)[kPieceWidth<kType>]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DataType::kFloat32) {
      words[i] = __float_as_uint(v[i]);
    } else if constexpr (kType == DataType::kBFloat16) {
      __nv_bfloat162 const pair = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
      words[i] = reinterpret_cast<unsigned const&>(pair);
    } else {
      __half2 const pair = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
      words[i] = reinterpret_cast<unsigned const&>(pair);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The largest element * scale, rounded as a product of fp32; of 16 bits two elements at a time. NaN
// is left out unless there is nothing else.
template <DataType kType, int kPieces>
__device__ __forceinline__ float find_max(uint4 const (&pieces)[kPieces], float scale) {
  if constexpr (kType == DataType::kFloat32) {
    float max = -INFINITY;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      float v[kPieceWidth<kType>];
      unpack<kType>(pieces[p], v);
#pragma unroll
      for (int i = 0; i < kPieceWidth<kType>; ++i) max = fmaxf(max, v[i] * scale);
    }
    return max;
  } else {
    // Rounding keeps the order, so that the largest product is that of the largest element, or with
    // a negative scale of the smallest.
    using Pair = std::conditional_t<kType == DataType::kBFloat16, __nv_bfloat162, __half2>;
    unsigned const sign = scale < 0.0f ? 0x80008000u : 0u;
    unsigned max = pieces[0].x ^ sign;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      unsigned const words[4] = {pieces[p].x, pieces[p].y, pieces[p].z, pieces[p].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        unsigned const word = words[i] ^ sign;
        Pair const larger =
            __hmax2(reinterpret_cast<Pair const&>(max), reinterpret_cast<Pair const&>(word));
        max = reinterpret_cast<unsigned const&>(larger);
      }
    }
    Pair const pair = reinterpret_cast<Pair const&>(max);
    return fmaxf(to_float(pair.x), to_float(pair.y)) * fabsf(scale);
  }
}

}  // namespace cutlass_fused
