// What a plan asks of a generation of kernels.
#pragma once

#include <string>
#include <vector>

#include "cutlass_fused/plan/plan.hpp"

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

// The rows and columns of y that a tile computes.
struct TileSize {
  int rows, columns;
};

// What a batch norm in training asks of the kernels behind whose product it stands.
struct NormWishes {
  bool keeps_z;           // z is wanted as a tensor
  bool finds_statistics;  // they may be those of the product's tiles
  bool strips;            // y may be normalized in strips
};

// kColumns: by kernels of their own, behind any product.
struct NormPlan {
  NormBy by = NormBy::kColumns;
  ProductPlan product = {};
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
  int64_t (*surcharge)(int tile, Problem const&, int64_t cost, Device const&);
  // Whether the tile's kernel can go through a problem in that order, and the orders that are worth
  // a try; none where there is no choice.
  bool (*takes)(MathId, int tile, Raster const&);
  std::vector<char const*> (*list_rasters)(MathId, int tile);
  TileSize (*size)(MathId, int tile);

  // The rest is null where a generation does no such thing.

  // Copies that make rows fit for its tiles, and whether a tile writes a y that none fits.
  Copies (*choose_copies)(Problem const&) = nullptr;
  bool (*writes_any_rows)(MathId, int tile) = nullptr;
  // What takes the place of `product`, a tile of its own, in front of a softmax. kNone: nothing.
  ProductPlan (*choose_logits)(Problem const&, ProductPlan const& product, Device const&) = nullptr;
  // The same in front of a batch norm.
  NormPlan (*plan_norm)(Problem const&, ProductPlan const& product, NormWishes const&,
                        Device const&, Struck) = nullptr;
  std::string (*name_group_tile)() = nullptr;  // of kGroup, which no table has
  // Whether the tiles of a Math row are compiled with AddScaled.
  bool (*has_add_scaled)(MathId) = nullptr;
  // Nanoseconds of a bare product of 16-bit numbers behind these copies, beside what it takes
  // cuBLAS; `estimate`: with the surcharge.
  int64_t (*cost_of_bare)(int tile, Problem const&, Copies const&, int64_t estimate,
                          Device const&) = nullptr;
  // Whether tiles of split rows sum across the parts of a weight.
  bool reads_along_n = false;
  // Whether all tiles have kernels for open epilogues (epilogue/open/).
  bool has_open = false;
};

constexpr ArchSpec with_open(ArchSpec spec) {
  spec.has_open = true;
  return spec;
}

// The index of the tile of this name; -1 if there is none.
inline int index_of_tile(ArchSpec const& arch, MathId math, std::string const& name) {
  for (int i = 0; i < arch.count(math); ++i) {
    if (arch.name_tile(math, i) == name) return i;
  }
  return -1;
}

}  // namespace cutlass_fused
