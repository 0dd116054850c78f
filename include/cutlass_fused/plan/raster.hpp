// How a kernel that has a choice goes through a problem. Plain integers.
#pragma once

#include <string>

namespace cutlass_fused {

// Persistent kernels: clusters that run at the same time take neighbours along M or N, in panels of
// `count` clusters along the other one, so that they share in L2 what they read. Kernels that slice
// K cut it into `count` slices.
struct Raster {
  enum Direction { kAlongM, kAlongN, kAlongK };  // of the tiles, which swapped operands turn round
  Direction direction = kAlongM;
  int count = 1;  // of a panel 1, 2, 4 or 8; of slices 1 to 8

  std::string name() const { return "mnk"[direction] + std::to_string(count); }
};

constexpr int kMostSlices = 8;  // one to a block of a cluster, which has eight at most

// "m4" -> along M, in panels of four; "k3" -> three slices. False: no raster.
inline bool parse_raster(std::string const& name, Raster& raster) {
  size_t const direction = name.empty() ? std::string::npos : std::string("mnk").find(name[0]);
  if (name.size() != 2 || direction == std::string::npos) return false;
  int const count = name[1] - '0';
  if (count < 1 || count > kMostSlices) return false;
  if (direction != Raster::kAlongK && (count & (count - 1)) != 0) return false;
  raster = {static_cast<Raster::Direction>(direction), count};
  return true;
}

}  // namespace cutlass_fused
