// Which kernels multiply fp32 matrices: those of split rows, or those of tf32x3, which read the
// matrices as they lie; of batches cuBLAS too.
#pragma once

#include <cmath>
#include <limits>

#include "cutlass_fused/gemm/fp16x3/split_columns.hpp"
#include "cutlass_fused/gemm/tf32x3/spec.hpp"
#include "cutlass_fused/plan/choose_product.hpp"
#include "cutlass_fused/plan/costs/cublas_fp32.hpp"
#include "cutlass_fused/plan/costs/cublas_tf32.hpp"
#include "cutlass_fused/gemm/compiled.hpp"

namespace cutlass_fused {

// Estimated nanoseconds of a pass that splits the rows of a matrix, and writes a half of the bytes
// that it reads for each fp16 part. Where rows are short, it is their number that counts. `folded`:
// it multiplies x by the scales of a weight that is split along N.
inline int64_t cost_of_pass(MathId math, int64_t rows, int64_t columns, bool folded = false) {
  constexpr int64_t kPassNs = 1650, kFoldNs = 700, kBytesPerNs = 4200;
  constexpr int64_t kRowsPerUs = 2100, kFoldedRowsPerUs = 1420;
  int64_t const bytes = spec_of(math).engine == Engine::kFp16x1 ? 6 : 8;
  return kPassNs + (folded ? kFoldNs : 0) +
         std::max(rows * 1000 / (folded ? kFoldedRowsPerUs : kRowsPerUs),
                  bytes * rows * columns / kBytesPerNs);
}

// What more a matrix takes that lies along M or N. Its rows' largest numbers are found first: of a
// longer K by other blocks than those that split, behind a launch that clears their workspace.
// Scales that are folded into it were not seen to take more.
inline int64_t cost_of_measuring(int64_t rows, int64_t k) {
  constexpr int64_t kShortNs = 100, kNsOfK = 8, kLongNs = 2400, kBytesPerNs = 3850;
  return k <= SplitTile::kShort ? kShortNs + kNsOfK * k : kLongNs + 4 * rows * k / kBytesPerNs;
}

// What the estimate of a tile, which is for comparisons between tiles, says of a whole kernel: a
// long one runs at a lower clock, less so with one product for three. Of kernels that slice K it
// says too much.
inline int64_t cost_of_kernel(MathId math, Raster const& raster, int64_t estimate) {
  constexpr int64_t kPercent = 105, kLongNs = 30000, kSlicedNs = 2300;
  int64_t const long_percent = spec_of(math).engine == Engine::kFp16x1 ? 14 : 30;
  int64_t const surplus = raster.direction == Raster::kAlongK ? kSlicedNs : 0;
  return (estimate * kPercent + std::max(estimate - kLongNs, int64_t(0)) * long_percent) / 100 -
         surplus;
}

// Estimated nanoseconds of a product of split rows in a CUDA graph, with all passes before and
// behind it. `problem`: of the matrices as they lie. The numbers fit 482 products, in three
// layouts and two precisions, of 16 x 64 x 64 to 16384 x 4096 x 4096, timed on an H200: within a
// tenth of most times that are near those of other kernels.
struct SplitCost {
  // Of a weight whose parts are kept, or are to be made. Beside an x along M, as the gradient of a
  // weight has it, none are kept.
  int64_t kept, missing;
  int64_t weight_numbers;

  // Whether the parts of a weight are kept must not change a bit of the result: there is one choice
  // for both, by the geometric mean; but a weight whose parts are not kept shall not pay too much
  // for those that are. A large one keeps them while it is trained, too, until a step: at 128 x
  // 16384 x 16384 a product took 0.34 ms with them and 0.63 ms without (H200).
  double of_both() const {
    constexpr double kTooMuch = 1.25;
    constexpr int64_t kLarge = int64_t(1) << 26;
    double const mean = std::sqrt(double(kept) * double(missing));
    return weight_numbers >= kLarge ? mean : std::max(mean, double(missing) / kTooMuch);
  }
};

inline SplitCost cost_of_split_rows(Problem const& problem, SplitChoice const& choice,
                                    Device const& device) {
  constexpr int64_t kLaunchesNs = 4000;
  Problem const split = parts_of(problem, choice.along_n);
  ProductPlan const& product = choice.product;
  bool const x_along_m = problem.x.major == Major::kMn;
  auto const measure = [&](int64_t rows, Major major) {
    return major == Major::kMn ? cost_of_measuring(rows, problem.k) : 0;
  };
  int64_t const of_weight = choice.along_n ? cost_of_pass(problem.math, problem.k, problem.n)
                                           : cost_of_pass(problem.math, problem.n, problem.k) +
                                                 measure(problem.n, problem.weight.major);
  int64_t const of_x =
      cost_of_pass(problem.math, problem.m, problem.k, choice.along_n && !x_along_m) +
      measure(problem.m, problem.x.major);
  int64_t const estimate = spec_of(product.arch).estimate(product.tile, split, device).cost;
  int64_t const cost = kLaunchesNs + of_x + cost_of_kernel(problem.math, product.raster, estimate);
  int64_t const whole = cost + of_weight;
  return {x_along_m ? whole : cost, whole, problem.n * problem.k};
}

// What the estimate of a tile of tf32x3 says beside other kernels. Blocks of 32 rows that have an
// SM for themselves take less, where a stage is one product much less, and several to an SM take
// more; so do those whose columns are empty for the most part. Fitted to 482 products on an H200.
inline int64_t cost_as_they_lie(ChoiceTf32x3 const& choice, Problem const& problem,
                                Device const& device) {
  if (choice.tile < 0) return choice.cost_ns;
  constexpr int kFewRows = 32;
  constexpr int64_t kMostTimed = 65536;  // rows
  TileShapeTf32x3 const& tile = TilesTf32x3::kShapes[choice.tile];
  if (tile.m > kFewRows) return choice.cost_ns;
  int64_t const blocks =
      count_tiles_tf32x3(tile, problem.m, problem.n, problem.batch) * choice.shares;
  bool const in_tf32 = problem.engine() == Engine::kFp16x1, is_shared = choice.shares > 1;
  int64_t percent = 100;
  if (blocks <= device.sm_count) {
    percent = in_tf32 ? (is_shared ? 84 : 78) : (is_shared ? 100 : 90);
  } else if (2 * problem.n <= tile.n && problem.m <= kMostTimed) {
    percent = 120;
  } else if (!is_shared) {
    percent = in_tf32 ? 110 : 103;
  }
  return choice.cost_ns * percent / 100;
}

// The choice does not change where a launch was refused.
inline bool beats_split_rows(int64_t cost, Problem const& problem, EpilogueId const& epilogue,
                             Device const& device) {
  SplitChoice const choice = choose_split(problem, epilogue, device);
  if (choice.product.by != ProductBy::kTile) return true;
  return double(cost) < cost_of_split_rows(problem, choice, device).of_both();
}

// Whether kernels of tf32x3 can take the product. Each epilogue has those for operands that lie
// along K; an open one can be a pass behind those for others.
inline bool tf32x3_serves(Problem const& problem, Tail const& tail) {
  return splits_rows(problem.math) && problem.weight_split != WeightSplit::kAlone &&
         tail.kind != Tail::kBatchNorm &&
         (!lies_along_mn(problem) || serves_any_major(tail.epilogue) ||
          tail.epilogue == names::kOpen);
}

// The GPU with the tiles of tf32x3 that are compiled for the epilogue. Those for 9.0 are for
// ScaleLeakyReLU, which a product alone has too, and for AddScaled: the vectors of a batch norm
// would not fit into registers beside their sums.
inline Device with_tiles_of(EpilogueId const& epilogue, Device device) {
  if (!serves_any_major(epilogue)) device.archs = ArchSet().with(ArchId::kSm80);
  return device;
}

// The cheapest tile, at the cost beside other kernels. No open kernel adds up parts of K, or reads
// what lies along M or N, and some tiles have none: a program is within a product by one that has,
// or a pass behind any.
inline ChoiceTf32x3 choose_as_they_lie(Problem const& problem, Tail const& tail,
                                       Device const& device) {
  auto const choose = [&](Device const& with_tiles, bool in_parts) {
    ChoiceTf32x3 choice = choose_tf32x3(problem, with_tiles, in_parts);
    choice.cost_ns = cost_as_they_lie(choice, problem, with_tiles);
    return choice;
  };
  Device const with_tiles = with_tiles_of(tail.epilogue, device);
  if (!(tail.epilogue == names::kOpen)) return choose(with_tiles, /*in_parts=*/true);
  ChoiceTf32x3 const within = choose(with_tiles, /*in_parts=*/false);
  ChoiceTf32x3 behind = choose(device, /*in_parts=*/true);
  if (behind.tile < 0) return behind;
  behind.cost_ns += cost_of_epilogue(problem, tail);
  if (lies_along_mn(problem)) return behind;
  return within.cost_ns <= behind.cost_ns ? within : behind;
}

inline ProductPlan use_tf32x3(ChoiceTf32x3 const& choice) {
  return {ProductBy::kTf32x3, ArchId::kSm80, choice.tile, {Raster::kAlongK, choice.shares}};
}

// Each tile with the cheapest number of shares that needs no pass, the cheapest first.
inline std::vector<ProductPlan> list_plans_tf32x3(Problem const& problem, Device const& device) {
  std::vector<ChoiceTf32x3> choices;
  for (int tile = 0; tile < TilesTf32x3::kSize; ++tile) {
    ChoiceTf32x3 const choice = choose_shares(tile, problem, device, /*in_parts=*/false);
    if (choice.tile >= 0) choices.push_back(choice);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](auto const& a, auto const& b) { return a.cost_ns < b.cost_ns; });
  std::vector<ProductPlan> plans;
  for (ChoiceTf32x3 const& choice : choices) plans.push_back(use_tf32x3(choice));
  return plans;
}

// The tile of this name; kUnknownTile if it cannot serve.
inline ProductPlan use_tf32x3(TileOverride const& named, Problem const& problem,
                              Device const& device) {
  int const tile = find_tile_tf32x3(named.tile), shares = named.has_raster ? named.raster.count : 1;
  bool const serves = tile >= 0 && can_serve(TilesTf32x3::kShapes[tile], shares, problem, device);
  return serves ? use_tf32x3({tile, shares, 0}) : ProductPlan{ProductBy::kUnknownTile};
}

// Whether the product can have what timing found: a tile of tf32x3 cannot read all operands, nor
// stand before every epilogue, and is ignored there.
inline bool can_have(TileOverride const& tuned, Problem const& problem, Tail const& tail,
                     Device const& device) {
  Device const with_tiles = with_tiles_of(tail.epilogue, device);
  return !tuned.tf32x3 || use_tf32x3(tuned, problem, with_tiles).by == ProductBy::kTf32x3;
}

// Whether timing found a tile of split rows for this product: for operands along K, as they are
// timed. A tile that cannot serve is ignored.
inline bool is_tuned_to_split_rows(TileOverride const& tuned, Problem const& problem,
                                   Device const& device) {
  if (tuned.cublas || tuned.any_tile || tuned.tf32x3 || tuned.splits_rows) return false;
  if (lies_along_mn(problem)) return false;
  return device.archs.has(tuned.arch) &&
         use_tile(tuned, parts_of(problem, /*along_n=*/false), device).by == ProductBy::kTile;
}

// The kernel of tf32x3 that takes less time than those of split rows; else kNone.
inline ProductPlan choose_over_split_rows(Problem const& problem, Tail const& tail,
                                          Device const& device, Overrides const& overrides) {
  TileOverride const *const forced = overrides.forced, *const tuned = overrides.tuned;
  if (!tf32x3_serves(problem, tail) || (forced != nullptr && !forced->tf32x3)) return {};
  Device const with_tiles = with_tiles_of(tail.epilogue, device);
  if (forced != nullptr && !forced->tile.empty()) return use_tf32x3(*forced, problem, with_tiles);
  if (forced == nullptr && tuned != nullptr) {
    ProductPlan const named = use_tf32x3(*tuned, problem, with_tiles);
    if (named.by == ProductBy::kTf32x3) return named;
    if (is_tuned_to_split_rows(*tuned, problem, device)) return {};
  }
  ChoiceTf32x3 const choice = choose_as_they_lie(problem, tail, device);
  bool const wins =
      forced != nullptr || beats_split_rows(choice.cost_ns, problem, tail.epilogue, device);
  return choice.tile >= 0 && wins ? use_tf32x3(choice) : ProductPlan{};
}

// What can serve, as force_tile takes it: all that is no slower than twice the cheapest, by the
// estimates, and takes no more memory than a cold cache does beside them.
inline std::vector<std::string> list_tf32x3(Problem const& problem, Device const& device) {
  constexpr int64_t kMostBytes = int64_t(256) << 20;
  auto const fits = [&](TileShapeTf32x3 const& tile, int shares) {
    int64_t const tiles = count_tiles_tf32x3(tile, problem.m, problem.n, problem.batch);
    return workspace_tf32x3(tile, share_out_tf32x3(tile, shares, tiles, device), problem.m,
                            problem.n, problem.batch) <= kMostBytes;
  };
  std::vector<std::string> names;
  int64_t const most = 2 * choose_tf32x3(problem, device).cost_ns;
  for (TileShapeTf32x3 const& tile : TilesTf32x3::kShapes) {
    for (int shares = 1; shares <= kMostShares; shares *= 2) {
      if (can_serve(tile, shares, problem, device) && fits(tile, shares) &&
          tile_cost_tf32x3(tile, shares, problem, device) <= most) {
        names.push_back(tile.name() + "@" + Raster{Raster::kAlongK, shares}.name());
      }
    }
  }
  return names;
}

// Nanoseconds of a batch whose matrices are multiplied one by one, as split rows. Nothing is kept
// of them, and each takes launches of its own, in which a GPU waits for its host.
inline double cost_one_by_one(Problem const& batch, Device const& device) {
  constexpr int64_t kHostNs = 10000;
  Problem one = batch;
  one.batch = 1;
  SplitChoice const choice = choose_split(one, EpilogueId{names::kScaleLeakyReLU}, device);
  if (choice.product.by != ProductBy::kTile) return std::numeric_limits<double>::infinity();
  return double(batch.batch) *
         double(std::max(kHostNs, cost_of_split_rows(one, choice, device).missing));
}

// By a margin in fp32, as the estimates of cuBLAS are off by a tenth.
inline double cost_of_cublas_batch(Problem const& batch, Device const& device) {
  constexpr double kMargin = 0.95;
  if (spec_of(batch.math).precision == Precision::kIeee) {
    return double(cost_of_batch(batch)) / kMargin;
  }
  return knows_cublas_tf32(device) ? double(cost_of_cublas_tf32(batch))
                                   : std::numeric_limits<double>::infinity();
}

// Of a batch of 16-bit matrices: kernels of fp32 matrices say nothing of them.
inline ProductPlan choose_batched_16_bit(Overrides const& overrides) {
  TileOverride const* const forced = overrides.forced;
  bool const of_fp32 =
      forced != nullptr && forced->tile.empty() && (forced->tf32x3 || forced->splits_rows);
  bool const is_forced = forced != nullptr && forced->cublas;
  if (forced != nullptr && !of_fp32 && !is_forced) return {};
  if (!overrides.struck.has(Part::kCublas)) return {ProductBy::kCublas};
  return {is_forced ? ProductBy::kUnknownTile : ProductBy::kNone};
}

// Of a batch. kTf32x3 and kCublas take the batch whole. kNone: the matrices are multiplied one by
// one, each as a plan of its own says. The problem is of one product, and of so many of them.
inline ProductPlan choose_batched(Problem const& problem, Device const& device,
                                  Overrides const& overrides) {
  if (problem.engine() == Engine::kPlain) return choose_batched_16_bit(overrides);
  bool const has_cublas = !overrides.struck.has(Part::kCublas);
  TileOverride const* const forced = overrides.forced;
  if (forced != nullptr) {
    if (forced->cublas) return {has_cublas ? ProductBy::kCublas : ProductBy::kUnknownTile};
    if (!forced->tf32x3) return {};
    if (!forced->tile.empty()) return use_tf32x3(*forced, problem, device);
  }
  // Of a short K plain fp32 has the smaller error. Tiles have too many rows for a few.
  constexpr int64_t kFew = 8;
  bool const is_few = std::min(problem.m, problem.n) < kFew && has_cublas;
  if (forced == nullptr && is_few) return {ProductBy::kCublas};
  if (!splits_rows(problem.math)) return {has_cublas ? ProductBy::kCublas : ProductBy::kNone};
  ChoiceTf32x3 const choice = choose_tf32x3(problem, device);
  if (forced != nullptr) return choice.tile >= 0 ? use_tf32x3(choice) : ProductPlan{};
  double const one_by_one = cost_one_by_one(problem, device);
  double const whole = choice.tile >= 0 ? double(choice.cost_ns) : one_by_one;
  if (has_cublas && cost_of_cublas_batch(problem, device) < std::min(whole, one_by_one)) {
    return {ProductBy::kCublas};
  }
  return choice.tile >= 0 && whole < one_by_one ? use_tf32x3(choice) : ProductPlan{};
}

}  // namespace cutlass_fused
