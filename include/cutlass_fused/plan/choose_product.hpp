// Which kernel multiplies: the forced one, else the one that the product was tuned to, else the
// cheapest by the estimates. And the copies beside it.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/tma_rows.hpp"
#include "cutlass_fused/plan/archs.hpp"
#include "cutlass_fused/plan/plan.hpp"

namespace cutlass_fused {

// Whether cuBLAS can give the product of 16-bit matrices. For those of fp32 choose_cublas.hpp asks.
inline bool cublas_serves(Problem const& problem) {
  return spec_of(problem.math).engine == Engine::kPlain && problem.k > 0;
}

// The cheapest tile of a generation; kNone if none serves.
inline ProductPlan choose_cheapest(ArchSpec const& arch, Problem const& problem,
                                   Device const& device) {
  ProductPlan best{ProductBy::kNone, arch.id};
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < arch.count(problem.math); ++i) {
    if (!arch.serves(i, problem, device) || !arch.is_worth_an_estimate(i, problem, device)) {
      continue;
    }
    Estimate const estimate = arch.estimate(i, problem, device);
    int64_t const cost = estimate.cost + arch.surcharge(i, problem, estimate.cost, device);
    if (cost < best_cost) {  // equal costs go to the tile that stands first in the table
      best = {ProductBy::kTile, arch.id, i, estimate.raster};
      best_cost = cost;
    }
  }
  return best;
}

// The tile of this override; kUnknownTile if it cannot serve.
inline ProductPlan use_tile(TileOverride const& named, Problem const& problem,
                            Device const& device) {
  ArchSpec const& arch = spec_of(named.arch);
  ProductPlan const unknown{ProductBy::kUnknownTile, arch.id};
  int const tile = index_of_tile(arch, problem.math, named.tile);
  if (tile < 0 || !arch.serves(tile, problem, device)) return unknown;
  if (named.has_raster && !arch.takes(problem.math, tile, named.raster)) return unknown;
  Raster const raster =
      named.has_raster ? named.raster : arch.estimate(tile, problem, device).raster;
  return {ProductBy::kTile, arch.id, tile, raster};
}

// The product by the kernels of one generation. kNone: an older one serves.
inline ProductPlan choose_on(ArchSpec const& arch, Problem const& problem, Device const& device,
                             TileOverride const* forced) {
  switch (arch.reads(problem)) {
    case ReadBy::kNone:
      return {ProductBy::kNone, arch.id};
    case ReadBy::kNarrow4:
      return {ProductBy::kNarrow4, arch.id};
    case ReadBy::kNarrow2:
      return {ProductBy::kNarrow2, arch.id};
    case ReadBy::kTiles:
      break;
  }
  if (forced == nullptr || (forced->any_tile && forced->is_of(arch.id))) {
    return choose_cheapest(arch, problem, device);
  }
  if (!forced->is_of(arch.id)) return {ProductBy::kNone, arch.id};
  return use_tile(*forced, problem, device);
}

// The product by the estimates, unless a tile is forced.
inline ProductPlan choose_newest(Problem const& problem, Device const& device,
                                 Overrides const& overrides) {
  if (!fits_kernels(problem)) return {};
  if (problem.k == 0 || problem.engine() == Engine::kSimt) return {ProductBy::kSimt};
  TileOverride const* const forced = overrides.forced;
  bool const struck = overrides.struck.has(Part::kProduct);
  for (ArchId arch : kNewestFirst) {
    if (!device.archs.has(arch) || (struck && arch != ArchId::kSm80)) continue;
    ProductPlan const product = choose_on(spec_of(arch), problem, device, forced);
    if (product.by != ProductBy::kNone) return product;
  }
  return {forced != nullptr && !forced->any_tile ? ProductBy::kUnknownTile : ProductBy::kNone};
}

// Whether the tuned tile may take the place of the estimated one. An SM80 tile may not where the
// operands are `copied` for newer kernels: it would read them as they lie.
inline bool takes_tuned(TileOverride const& tuned, ProductPlan const& estimated, bool copied) {
  if (estimated.by != ProductBy::kTile || tuned.any_tile || tuned.cublas || tuned.tf32x3) {
    return false;
  }
  return tuned.arch == estimated.arch ||
         (tuned.arch == ArchId::kSm80 && estimated.arch != ArchId::kSm80 && !copied);
}

// A tuned tile that cannot serve, as one of another build of the library, is ignored. `copied`: the
// operands are to be copied for newer kernels, and lie otherwise for those of SM80.
inline ProductPlan choose_product(Problem const& problem, Device const& device,
                                  Overrides const& overrides, bool copied = false) {
  // Matrices for CUDA cores have one kernel, whatever is forced.
  if (problem.engine() == Engine::kSimt) return choose_newest(problem, device, overrides);
  constexpr ProductPlan kCublas{ProductBy::kCublas};
  bool const has_cublas = cublas_serves(problem) && !overrides.struck.has(Part::kCublas);
  TileOverride const* const forced = overrides.forced;
  if (forced != nullptr && forced->cublas) {
    return has_cublas ? kCublas : ProductPlan{ProductBy::kUnknownTile};
  }
  TileOverride const* const tuned = overrides.tuned;
  if (tuned != nullptr && tuned->cublas && has_cublas) return kCublas;
  ProductPlan const estimated = choose_newest(problem, device, overrides);
  if (tuned == nullptr || !takes_tuned(*tuned, estimated, copied)) return estimated;
  if (tuned->arch != estimated.arch && spec_of(tuned->arch).reads(problem) != ReadBy::kTiles) {
    return estimated;
  }
  if (overrides.struck.has(Part::kProduct) && tuned->arch != ArchId::kSm80) return estimated;
  ProductPlan const named = use_tile(*tuned, problem, device);
  return named.by == ProductBy::kTile ? named : estimated;
}

// The rows and columns of y that the plan's tile computes.
inline TileSize size_of_tile(ProductPlan const& product, Problem const& problem) {
  return spec_of(product.arch).size(problem.math, product.tile);
}

// The name of the plan's tile, as force_tile takes it.
inline std::string name_tile(ProductPlan const& product, MathId math) {
  ArchSpec const& arch = spec_of(product.arch);
  bool const ordered = !arch.list_rasters(math, product.tile).empty();
  return arch.name_tile(math, product.tile) + (ordered ? "@" + product.raster.name() : "");
}

// What can serve instead of the kernel that was chosen, and it itself; tiles that have a choice of
// rasters with each of a few. Empty where there is nothing to choose. `copied` as above.
inline std::vector<std::string> list_candidates(ProductPlan const& product, Problem const& problem,
                                                Device const& device, Overrides const& overrides,
                                                bool copied = false) {
  std::vector<std::string> names;
  if (product.by != ProductBy::kTile || overrides.forced != nullptr) return names;
  if (cublas_serves(problem) && !overrides.struck.has(Part::kCublas)) names.push_back(kCublasName);
  for (int i = kArchs - 1; i >= 0; --i) {  // the oldest first
    ArchSpec const& arch = spec_of(kNewestFirst[i]);
    // Where the choice was an older kernel, this generation cannot read the operands.
    if (!device.archs.has(arch.id) || arch.id > product.arch) continue;
    if (arch.reads(problem) != ReadBy::kTiles || (copied && arch.id != product.arch)) continue;
    for (int tile = 0; tile < arch.count(problem.math); ++tile) {
      if (!arch.serves(tile, problem, device)) continue;
      std::string const name = arch.name_tile(problem.math, tile);
      std::vector<char const*> const rasters = arch.list_rasters(problem.math, tile);
      if (rasters.empty()) names.push_back(name);
      for (char const* raster : rasters) names.push_back(name + "@" + raster);
    }
  }
  return names;
}

// The problem as it lies behind these copies.
inline Problem with_copies(Problem problem, Copies const& copies) {
  int64_t const whole = 16 / problem.operand_bytes();
  auto const align = [&](int64_t columns) { return Rows{ceil_div(columns, whole) * whole}; };
  if (copies.x) problem.x = align(problem.k);
  if (copies.weight) problem.weight = align(problem.k);
  if (copies.y) problem.y = align(problem.n);
  problem.copies_y = copies.y;
  return problem;
}

// By a generation that copies what its kernels cannot read, so that they serve; false: none does.
inline bool plan_copies(Plan& plan, Problem const& problem, Device const& device,
                        Overrides const& overrides) {
  if (overrides.struck.has(Part::kCopies)) return false;
  for (ArchId id : kNewestFirst) {
    ArchSpec const& arch = spec_of(id);
    if (!device.archs.has(id) || arch.choose_copies == nullptr) continue;
    Copies copies = arch.choose_copies(problem);
    if (!copies.any()) continue;
    Problem const copied = with_copies(problem, copies);
    ProductPlan const product = choose_product(copied, device, overrides, copies.operands());
    bool const has_tile = product.by == ProductBy::kTile;
    if (product.arch != id || (!has_tile && product.by != ProductBy::kUnknownTile)) continue;
    if (has_tile && arch.writes_any_rows(problem.math, product.tile)) copies.y = false;
    plan.copies = copies;
    plan.product = product;
    return true;
  }
  return false;
}

inline void plan_product(Plan& plan, Problem const& problem, Device const& device,
                         Overrides const& overrides) {
  if (!plan_copies(plan, problem, device, overrides)) {
    plan.product = choose_product(problem, device, overrides);
  }
}

// The plan with each tile that reads what it copies and splits, and writes what it writes: the
// cheapest first, its own among them. Of these, tiles whose estimate is not to be trusted come
// last.
inline std::vector<Plan> list_with_tiles(Plan const& plan, Problem const& given,
                                         Device const& device) {
  if (plan.product.by != ProductBy::kTile) return {};
  Problem const problem =
      plan.splits ? parts_of(given, plan.along_n) : with_copies(given, plan.copies);
  std::vector<std::pair<int64_t, Plan>> found;
  for (ArchId id : kNewestFirst) {
    ArchSpec const& arch = spec_of(id);
    // An older generation reads other rows, which are not copied for it.
    bool const is_other = id != plan.product.arch;
    if (!device.archs.has(id) || id > plan.product.arch || (is_other && plan.copies.any()))
      continue;
    if (arch.reads(problem) != ReadBy::kTiles) continue;
    for (int tile = 0; tile < arch.count(problem.math); ++tile) {
      if (!arch.serves(tile, problem, device)) continue;
      Estimate const estimate = arch.estimate(tile, problem, device);
      int64_t cost = std::numeric_limits<int64_t>::max();
      if (arch.is_worth_an_estimate(tile, problem, device)) {
        cost = estimate.cost + arch.surcharge(tile, problem, estimate.cost, device);
      }
      Plan other = plan;
      other.product = {ProductBy::kTile, id, tile, estimate.raster};
      found.push_back({cost, other});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](auto const& a, auto const& b) { return a.first < b.first; });
  std::vector<Plan> plans;
  for (auto const& [cost, other] : found) plans.push_back(other);
  return plans;
}

// ---- rows that are split ----
//
// A weight that lies along N, as the gradient of x has that of a Linear, is split as it lies where
// kernels can sum across its parts: these are the parts that the product forward reads, and are
// made in one pass over rows, not in two over columns. The scales of its rows go to the parts of x.

// Whether the parts of such a weight, of which a product has n rows, are those of the rows of its
// transpose. This depends on no more than what split_weight knows.
inline bool has_parts_along_n(MathId math, Major weight, int64_t n, Device const& device) {
  constexpr int64_t kWhole = 4;  // of n: TMA writes rows of y that begin at multiples of 16 bytes
  bool has_kernels = false;
  for (ArchId arch : kNewestFirst) {
    has_kernels |= device.archs.has(arch) && spec_of(arch).reads_along_n;
  }
  return has_kernels && splits_rows(math) && weight == Major::kMn && n % kWhole == 0;
}

// Whether there are kernels for it. One epilogue has them: that of gradients.
inline bool reads_parts_along_n(Problem const& given, EpilogueId const& epilogue,
                                Device const& device) {
  return has_parts_along_n(given.math, given.weight.major, given.n, device) &&
         tma_writes_rows(given, DataType::kFloat32) &&
         epilogue == EpilogueId{names::kScaleLeakyReLU};
}

// A product of split rows, and whether the weight's lie along N.
struct SplitChoice {
  ProductPlan product;
  bool along_n = false;
};

// `choose` gives the product of a problem of parts.
template <class Choose>
SplitChoice choose_split(Problem const& given, EpilogueId const& epilogue, Device const& device,
                         Choose const& choose) {
  if (reads_parts_along_n(given, epilogue, device)) {
    ProductPlan const product = choose(parts_of(given, /*along_n=*/true));
    if (product.by == ProductBy::kTile && spec_of(product.arch).reads_along_n)
      return {product, true};
  }
  return {choose(parts_of(given, /*along_n=*/false))};
}

// By the estimates.
inline SplitChoice choose_split(Problem const& given, EpilogueId const& epilogue,
                                Device const& device) {
  return choose_split(given, epilogue, device,
                      [&](Problem const& parts) { return choose_newest(parts, device, {}); });
}

}  // namespace cutlass_fused
