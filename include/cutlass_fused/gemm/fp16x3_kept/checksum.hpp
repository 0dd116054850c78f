// A checksum of the bits of an fp32 matrix, by which a GPU finds whether the parts of a weight are
// still those of it. Every word counts with its place: numbers that change places are noticed, and
// so are signs of zeros and payloads of NaN. The order of the sums does not matter.
#pragma once

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Two sums, modulo 2^64, of what a word and its place are mixed to. To `words` a word adds another
// number in each of its values, hence one that changed alone is never missed. `products` tells
// apart what is left: several that changed are missed by luck alone, once in 2^64 times or less.
struct Checksum {
  // Elements have 32 bits for their place.
  static constexpr int64_t kMostElements = int64_t(1) << 31;

  uint64_t products, words;

  CUTLASS_FUSED_HOST_DEVICE void add(uint32_t word, uint32_t place) {
    constexpr uint32_t kPlace = 0x9e3779b1u, kFirst = 0x7feb352du, kSecond = 0x846ca68bu;  // odd
    uint32_t mixed = word + place * kPlace;
    mixed = (mixed ^ mixed >> 16) * kFirst;
    uint32_t const other = (mixed ^ mixed >> 15) * kSecond;
    products += uint64_t(mixed) * other;
    words += other;
  }
  CUTLASS_FUSED_HOST_DEVICE void add(Checksum const& more) {
    products += more.products;
    words += more.words;
  }
  CUTLASS_FUSED_HOST_DEVICE bool operator==(Checksum const& other) const {
    return products == other.products && words == other.words;
  }
};

// What lies beside the parts of a weight, on the GPU; all of it is zero at first.
struct ChecksumState {
  static constexpr int kSlots = 32;

  Checksum kept;         // of what the parts are of
  uint32_t is_kept;      // there are parts
  uint32_t has_changed;  // the weight, when it was looked at last
  uint32_t done;         // blocks of the kernel that runs
  uint32_t unused;
  // What its blocks add to, so many at once.
  struct Slot {
    Checksum sum;
    uint64_t unused[6];
  } slots[kSlots];
};
constexpr int64_t kChecksumWords = sizeof(ChecksumState) / sizeof(int64_t);

}  // namespace cutlass_fused
