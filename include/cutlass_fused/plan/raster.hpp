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
  int count = 1;  // of a panel 1, 2, 4 or 8; of slices 1 to 64

  std::string name() const { return "mnk"[direction] + std::to_string(count); }
};

constexpr int kMostPanels = 8;
constexpr int kMostSlices = 8;   // one to a block of a cluster, which has eight at most
constexpr int kMostShares = 64;  // of kernels that join slices of several clusters

// "m4" -> along M, in panels of four; "k3" -> three slices. False: no raster.
inline bool parse_raster(std::string const& name, Raster& raster) {
  size_t const direction = name.empty() ? std::string::npos : std::string("mnk").find(name[0]);
  if (name.size() < 2 || name.size() > 3 || direction == std::string::npos) return false;
  int count = 0;
  for (char const digit : name.substr(1)) {
    if (digit < '0' || digit > '9' || (count == 0 && digit == '0')) return false;
    count = 10 * count + (digit - '0');
  }
  bool const is_slices = direction == Raster::kAlongK;
  if (count > (is_slices ? kMostShares : kMostPanels)) return false;
  if (!is_slices && (count & (count - 1)) != 0) return false;
  raster = {static_cast<Raster::Direction>(direction), count};
  return true;
}

}  // namespace cutlass_fused
