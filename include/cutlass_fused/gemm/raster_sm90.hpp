// The order in which persistent SM90 blocks walk over the output tiles. Plain integers.
#pragma once

#include <string>

namespace cutlass_fused {

// Clusters that run at the same time take neighbours along one direction, in panels of `swizzle`
// clusters along the other, so that they share in L2 what they read.
struct Raster {
  enum Direction { kAlongM, kAlongN };  // of the tiles, which swapped operands turn round
  Direction direction = kAlongM;
  int swizzle = 1;  // 1, 2, 4 or 8

  std::string name() const { return (direction == kAlongM ? "m" : "n") + std::to_string(swizzle); }
};

// The numbers of the names are their digits: "m4" -> along M, in panels of four. False: no raster.
inline bool parse_raster(std::string const& name, Raster& raster) {
  if (name.size() != 2 || (name[0] != 'm' && name[0] != 'n')) return false;
  int const swizzle = name[1] - '0';
  if (swizzle != 1 && swizzle != 2 && swizzle != 4 && swizzle != 8) return false;
  raster = {name[0] == 'm' ? Raster::kAlongM : Raster::kAlongN, swizzle};
  return true;
}

}  // namespace cutlass_fused
