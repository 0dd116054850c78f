// The mean and M2 of a tile's features, from the accumulators of an SM90 kernel with swapped
// operands: features are the tile's rows, rows of the batch its columns.
#pragma once

#include "cute/tensor.hpp"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/norm/statistics/part_statistics.hpp"
#include "cutlass_fused/norm/statistics/moments.cuh"

namespace cutlass_fused {

// What a thread holds: two features, and of each pairs of neighbouring columns. The four threads of
// a quad hold the same features.
struct TileThread {
  static constexpr int kQuad = 4;
  static constexpr int kPair = 2;      // features
  static constexpr int kBetween = 8;   // from the first of them to the second
  static constexpr int kDistance = 8;  // from one pair of columns to the next

  int n, m;  // of its first element: the feature, and the row of the batch
  int quad_lane;

  CUTLASS_DEVICE int feature(int pair) const { return n + pair * kBetween; }
};

// How many rows of the batch a tile of so many columns has. One behind the last row has none.
template <int kColumns>
CUTLASS_DEVICE int count_rows(int tile, int rows) {
  return min(max(rows - tile * kColumns, 0), kColumns);
}

template <class Tile, class TiledMma, class Coordinates>
CUTLASS_DEVICE TileThread find_tile_thread(Tile, TiledMma const& tiled_mma, Coordinates const& tile,
                                           int thread) {
  auto const identity = cute::make_identity_tensor(cute::take<0, 2>(Tile{}));
  auto const first = tiled_mma.get_slice(thread).partition_C(identity)(0);
  int const n = cute::get<0>(tile) * cute::size<0>(Tile{}) + cute::get<0>(first);
  int const m = cute::get<1>(tile) * cute::size<1>(Tile{}) + cute::get<1>(first);
  return {n, m, thread % TileThread::kQuad};
}

// The accumulators of a thread by what they are: value(pair, step, i) belongs to feature(pair) and
// the row m + step * kDistance + i.
template <class Accumulators>
struct TileValues {
  static constexpr int kSteps = decltype(cute::size<0, 2>(Accumulators{}.layout()))::value;
  static_assert(decltype(cute::size(Accumulators{}))::value == 2 * TileThread::kPair * kSteps,
                "a thread holds two features of a tile");

  Accumulators& acc;

  CUTLASS_DEVICE float& operator()(int pair, int step, int i) const {
    return acc(cute::make_coord(cute::make_coord(i, pair, step), 0, 0));
  }

  // Calls visit(value, row) for all of a pair's.
  template <class Visit>
  CUTLASS_DEVICE void for_each(TileThread const& at, int pair, Visit&& visit) const {
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2; ++i) {
        visit((*this)(pair, step, i), at.m + step * TileThread::kDistance + i);
      }
    }
  }
};

// acc becomes z = epilogue(acc), of `features` by `rows`.
template <class Epilogue, class Accumulators, class Args>
CUTLASS_DEVICE void apply_epilogue(TileValues<Accumulators> const& values, TileThread const& at,
                                   Args const& args, int features, int rows) {
  using Rows = Columns<typename Epilogue::Tree>;
  constexpr int kPair = TileThread::kPair;
  float operands[Rows::kRows * kPair];
  int64_t own[kPair];
  CUTLASS_PRAGMA_UNROLL
  for (int pair = 0; pair < kPair; ++pair) own[pair] = min(at.feature(pair), features - 1);
  Rows::load(args, own, operands, kPair);
  CUTLASS_PRAGMA_UNROLL
  for (int pair = 0; pair < kPair; ++pair) {
    values.for_each(at, pair, [&](float& acc, int m) {
      int const row = min(m, rows - 1);
      acc = Rows::apply(args, operands + pair, kPair, acc, row, own[pair],
                        Rows::fetch(args, row, own[pair]));
    });
  }
}

// The sums that a thread starts with: all of a quad are about the mean of the feature's first eight
// rows, of which it has two. They can be added up, and where one row lies far from the others the
// sum of squares, of which the mean's is taken, stays small.
CUTLASS_DEVICE ShiftedSums start_sums(float first, float second, TileThread const& at, int count) {
  constexpr int kFirst = 2 * TileThread::kQuad;
  int const row = 2 * at.quad_lane;
  // Divided before they are added: a sum of large numbers would overflow.
  float const part = count >= kFirst ? 1.0f / kFirst : 1.0f / count;
  float mean = (row < count ? first * part : 0.0f) + (row + 1 < count ? second * part : 0.0f);
  CUTLASS_PRAGMA_UNROLL
  for (int distance = 1; distance < TileThread::kQuad; distance *= 2) {
    mean += __shfl_xor_sync(~0u, mean, distance);
  }
  ShiftedSums sums;
  // An infinite row must give an infinite mean.
  sums.shift = isfinite(mean) ? mean : 0.0f;
  return sums;
}

// What the tile's z is stored less, if anything: the mean of those rows, where it is far in the
// measure of their distances to it. All of a quad find the same, and by a vote: it waits for less
// than the greatest distance would.
CUTLASS_DEVICE float choose_shift(float mean, float far_mean, float first, float second,
                                  TileThread const& at, int count) {
  int const row = 2 * at.quad_lane;
  float const spread = fmaxf(row < count ? fabsf(first - mean) : 0.0f,
                             row + 1 < count ? fabsf(second - mean) : 0.0f);
  unsigned const far = __ballot_sync(~0u, fabsf(mean) > far_mean * spread);
  constexpr unsigned kAll = (1u << TileThread::kQuad) - 1;
  unsigned const quad = cutlass::canonical_lane_idx() / TileThread::kQuad * TileThread::kQuad;
  return (far >> quad & kAll) == kAll ? mean : 0.0f;
}

// The mean and M2 of a feature's `count` rows, of which each thread of a quad has summed some, into
// the parts: those of the `part`th tile.
CUTLASS_DEVICE void publish_quad(ShiftedSums sums, int count, TileThread const& at,
                                 PartStatistics const& parts, int part, int pair) {
  CUTLASS_PRAGMA_UNROLL
  for (int distance = 1; distance < TileThread::kQuad; distance *= 2) {
    sums.sum += __shfl_xor_sync(~0u, sums.sum, distance);
    sums.squares += __shfl_xor_sync(~0u, sums.squares, distance);
  }
  if (at.quad_lane == 0 && at.feature(pair) < parts.features && count > 0) {
    Moments const moments = sums.moments(float(count));
    parts.publish(part, at.feature(pair), moments.mean, moments.m2);
  }
}

// The thread's sums of one feature, of which the tile has `count` rows. Overwrites what is no row
// of the batch.
template <class Accumulators>
CUTLASS_DEVICE ShiftedSums sum_rows(TileValues<Accumulators> const& values, TileThread const& at,
                                    int pair, int rows, int count) {
  ShiftedSums sums = start_sums(values(pair, 0, 0), values(pair, 0, 1), at, count);
  if (count < 2 * TileThread::kQuad * TileValues<Accumulators>::kSteps) {
    values.for_each(at, pair, [&](float& z, int m) {
      if (m >= rows) z = sums.shift;  // adds nothing
    });
  }
  values.for_each(at, pair, [&](float& z, int) { sums.add(z); });
  return sums;
}

}  // namespace cutlass_fused
