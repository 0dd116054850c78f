// What a plan asks of a generation of kernels.
#pragma once

#include <string>
#include <vector>

#include "cutlass_fused/plan/problem.hpp"
#include "cutlass_fused/plan/raster.hpp"

namespace cutlass_fused {

// The best way through a problem with a tile, and the estimated nanoseconds of the product, launch
// apart. Only comparisons matter.
struct Estimate {
  Raster raster;
  int64_t cost;
};

// Which kernels of a generation read the rows of a problem.
enum class ReadBy {
  kTiles,    // those of its tiles
  kNarrow4,  // rows are aligned to 4 bytes only: one kernel of its own
  kNarrow2,  // ... to 2 bytes
  kNone      // no kernel of this generation reads them
};

struct ArchSpec {
  ArchId id;
  char const* name;  // in the log
  int (*count)(MathId);
  std::string (*name_tile)(MathId, int tile);
  ReadBy (*reads)(Problem const&);
  // Whether the tile's kernel can compute the problem on this GPU, and whether its estimate is to
  // be trusted there.
  bool (*serves)(int tile, Problem const&, Device const&);
  bool (*is_worth_an_estimate)(int tile, Problem const&, Device const&);
  Estimate (*estimate)(int tile, Problem const&, Device const&);
  // What choosing between tiles adds to the estimate.
  int64_t (*surcharge)(int tile, Problem const&, int64_t cost);
  // Whether the tile's kernel can go through a problem in that order, and the orders that are worth
  // a try; none where there is no choice.
  bool (*takes)(MathId, int tile, Raster const&);
  std::vector<char const*> (*list_rasters)(MathId, int tile);
};

// The index of the tile of this name; -1 if there is none.
inline int index_of_tile(ArchSpec const& arch, MathId math, std::string const& name) {
  for (int i = 0; i < arch.count(math); ++i) {
    if (arch.name_tile(math, i) == name) return i;
  }
  return -1;
}

}  // namespace cutlass_fused
