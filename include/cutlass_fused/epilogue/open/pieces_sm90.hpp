// What a warp has of a part of a tile, as whole pieces of y's rows: 16 bytes each. In registers it
// lies as tensor cores leave it, in blocks of 8 x 8 of which each lane has two neighbours, which
// lie along y's columns where operands are swapped: stored or read one by one, elements of 16 bits
// would be eight times as many accesses.
#pragma once

#include "cutlass_fused/epilogue/open/calls.hpp"
#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"

namespace cutlass_fused::sm90 {

// Lane i of four neighbours gets what they have in register i, in their order. It is its own
// inverse.
CUTLASS_DEVICE void transpose_quad(uint32_t (&values)[4]) {
  CUTLASS_PRAGMA_UNROLL
  for (int bit = 1; bit < 4; bit *= 2) {
    bool const is_upper = (threadIdx.x & bit) != 0;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      uint32_t& low = values[i];
      uint32_t& high = values[i | bit];
      uint32_t const other = __shfl_xor_sync(0xffffffffu, is_upper ? low : high, bit);
      low = is_upper ? other : low;
      high = is_upper ? high : other;
    }
  }
}

// A block of 8 x 8 elements of 16 bits, of which each lane has two along a row.
CUTLASS_DEVICE uint32_t transpose_block(uint32_t pair) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

// Whether rows of 16-bit elements are whole pieces, each at a multiple of its size.
CUTLASS_DEVICE bool is_whole_pieces(void const* data, int64_t ld, int columns) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && ld % 8 == 0 && columns % 8 == 0;
}

CUTLASS_DEVICE void store_piece(void* to, bool is_in, uint4 const& piece) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.s32 p, %1, 0;\n"
      "@p st.global.v4.b32 [%0], {%2, %3, %4, %5};\n"
      "}\n" ::"l"(__cvta_generic_to_global(to)),
      "r"(int(is_in)), "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w)
      : "memory");
}

// Zeros beside the matrix.
CUTLASS_DEVICE uint4 load_piece(void const* from, bool is_in) {
  uint4 piece;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.s32 p, %5, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(piece.x), "=&r"(piece.y), "=&r"(piece.z), "=&r"(piece.w)
      : "l"(__cvta_generic_to_global(from)), "r"(int(is_in))
      : "memory");
  return piece;
}

// Coordinates: of a thread's elements, (CPY, CPY_M, CPY_N, EPI_M, EPI_N).
template <class Coordinates, bool kSwapped>
struct Pieces {
  static constexpr int kCount =  // elements of a part
      decltype(cute::size(cute::take<0, 3>(cute::shape(std::declval<Coordinates>()))))::value;
  static constexpr int kRowsOfBlock = 8, kBlocks = kCount / 4;  // along N; there are two along M
  static constexpr int kPieces = kCount / 8, kElements = 8;     // of 16 bits each

  // Whether they are where tensor cores leave them.
  static constexpr bool are_blocks() {
    auto const at = Coordinates{}(cute::_, cute::_, cute::_, 0, 0);
    for (int i = 0; i < kCount; ++i) {
      if (int(cute::get<0>(at(i))) != i / 2 % 2 * kRowsOfBlock) return false;
      if (int(cute::get<1>(at(i))) != i % 2 + i / 4 * kRowsOfBlock) return false;
    }
    return true;
  }
  static constexpr bool kArePossible =
      kCount % (kSwapped ? 8 : 16) == 0 && are_blocks();

  // Where a thread's first element is in the tile's part, and what follows for y.
  struct Place {
    int m, n;
  };
  // Of the lane's own piece, with an m and n of y.
  CUTLASS_DEVICE static Place find(int piece, int m, int n) {
    int const quad = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
    int const first_n = n - 2 * lane;
    if (kSwapped) {
      return {first_n + kRowsOfBlock * (2 * piece + lane / 2) + quad,
              m - quad + kRowsOfBlock * (lane % 2)};
    }
    return {m + kRowsOfBlock * (piece % 2), first_n + kRowsOfBlock * (piece / 2 * 4 + lane)};
  }

  // The first element of the pair that becomes the ith lane's piece.
  CUTLASS_DEVICE static constexpr int pair_of(int piece, int i) {
    return kSwapped ? (2 * piece + i / 2) * 4 + i % 2 * 2 : (piece / 2 * 4 + i) * 4 + piece % 2 * 2;
  }

  // All threads of a warp call these.
  template <int kSlot>
  CUTLASS_DEVICE static uint4 gather(float const* values, int piece) {
    uint32_t words[4];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      int const at = pair_of(piece, i);
      uint32_t const pair = open::pack<kSlot>(values[at], values[at + 1]);
      words[i] = kSwapped ? transpose_block(pair) : pair;
    }
    transpose_quad(words);
    return {words[0], words[1], words[2], words[3]};
  }

  template <int kSlot>
  CUTLASS_DEVICE static void scatter(uint4 const& data, int piece, float* values) {
    uint32_t words[] = {data.x, data.y, data.z, data.w};
    transpose_quad(words);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      int const at = pair_of(piece, i);
      uint32_t const pair = kSwapped ? transpose_block(words[i]) : words[i];
      values[at] = open::convert<kSlot>(pair & 0xffff);
      values[at + 1] = open::convert<kSlot>(pair >> 16);
    }
  }
};

}  // namespace cutlass_fused::sm90
