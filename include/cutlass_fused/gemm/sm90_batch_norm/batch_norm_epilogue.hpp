// The epilogue of a product with the batch norm of its own batch behind it, before anything is
// written: z stays in registers until its statistics are there.
//
// The tiles of all rows of the batch are computed at the same time, as a group: each publishes the
// mean and M2 of its rows, waits for those of the others, and merges all of them. Every block does
// so in the same order: two runs give the same bits. gemm/sm90_batch_norm/launch.hpp tells why none
// waits forever.
#pragma once

#include "cutlass_fused/epilogue/scale_bias.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/tiles.hpp"
#include "cutlass_fused/norm/statistics/part_statistics.hpp"
#include "cutlass_fused/gemm/sm90/registers_epilogue.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/tile_moments.hpp"
#include "cutlass_fused/norm/statistics/move_running.cuh"

namespace cutlass_fused {

template <class Built>
struct GroupBatchNorm;

struct BatchNormInGroup {
  static constexpr char kName[] = "batch_norm";

  struct Args {
    Evaluator<ScaleBias::Tree>::Arguments scale_bias;
    Vector gamma, beta;
    float eps;
    RunningStatistics running;
    float *mean, *rstd;  // of the batch, written: (N,)
    uint64_t* parts;     // of PartStatistics, all missing
    double reciprocal;   // of the number of rows
  };

  template <class Built>
  using Collective = GroupBatchNorm<Built>;
};

template <class Built>
struct GroupBatchNorm : RegistersEpilogue<Built, BatchNormInGroup::Args> {
  using Base = RegistersEpilogue<Built, BatchNormInGroup::Args>;
  using Base::Base;

  template <class Load, class LoadState, class Store, class StoreState, class ProblemShape,
            class Tile, class Coordinates, class Accumulators, class TiledMma>
  CUTLASS_DEVICE auto store(Load load, LoadState load_state, Store store, StoreState store_state,
                            ProblemShape problem_shape, Tile tile, Coordinates coordinates,
                            Accumulators accumulators, TiledMma tiled_mma, int thread,
                            typename Base::Storage& storage, int subtile) {
    TileThread const at = find_tile_thread(tile, tiled_mma, coordinates, thread);
    int const features = cute::get<0>(problem_shape), rows = cute::get<1>(problem_shape);
    TileValues<Accumulators> const z{accumulators};
    apply_epilogue<ScaleBias>(z, at, this->args.scale_bias, features, rows);
    Own const own = normalize(z, at, cute::get<1>(coordinates), features, rows);
    auto const states =
        Built::store(load, load_state, store, store_state, problem_shape, tile, coordinates,
                     accumulators, tiled_mma, thread, storage, subtile);
    // Last, since nobody waits for it here.
    if (cute::get<1>(coordinates) == 0 && at.quad_lane < TileThread::kPair && own.n < features) {
      this->args.mean[own.n] = float(own.mean);
      this->args.rstd[own.n] = own.rstd;
      move_running(this->args.running, own.n, own.mean, own.m2, rows);
    }
    return states;
  }

 private:
  static constexpr int kRows = cute::size<1>(typename Built::CtaTileMNK{});

  // One of the quad's features, of which two threads have each.
  struct Own {
    int n;
    double mean, m2;
    float rstd;
  };

  // In place.
  template <class Values>
  CUTLASS_DEVICE Own normalize(Values const& z, TileThread const& at, int tile, int features,
                               int rows) const {
    PartStatistics const parts{this->args.parts, features};
    Own own{at.feature(at.quad_lane % TileThread::kPair)};
    int const n = min(own.n, features - 1);
    Vector::Raw const raw_gamma = this->args.gamma.fetch(n), raw_beta = this->args.beta.fetch(n);
    int const count = count_rows<kRows>(tile, rows);
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < TileThread::kPair; ++pair) {
      ShiftedSums const sums = sum_rows(z, at, pair, rows, count);
      publish_quad(sums, count, at, parts, tile, pair);
    }
    merge(parts, n, rows, own);
    own.rstd = float(rsqrt(own.m2 * this->args.reciprocal + double(this->args.eps)));
    float const gamma = this->args.gamma.convert(raw_gamma);
    float const beta = this->args.beta.convert(raw_beta);
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < TileThread::kPair; ++pair) {
      float const mean = __shfl_sync(~0u, float(own.mean), pair, TileThread::kQuad);
      float const a = __shfl_sync(~0u, gamma * own.rstd, pair, TileThread::kQuad);
      float const d = __shfl_sync(~0u, beta, pair, TileThread::kQuad);
      z.for_each(at, pair, [&](float& value, int) { value = fmaf(value - mean, a, d); });
    }
    return own;
  }

  // Waits for the parts of a feature.
  CUTLASS_DEVICE void merge(PartStatistics const& parts, int n, int rows, Own& own) const {
    uint64_t part[kMostTilesOfGroup];
    bool missing;
    do {
      missing = false;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMostTilesOfGroup; ++i) {
        part[i] = parts.peek(i * kRows < rows ? i : 0, n);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMostTilesOfGroup; ++i) missing |= part[i] == PartStatistics::kMissing;
    } while (missing);

    PartSums sums;
    double const shift = PartStatistics::unpack(part[0]).x;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kMostTilesOfGroup; ++i) {
      int const count = count_rows<kRows>(i, rows);
      if (count > 0) sums.add(count, PartStatistics::unpack(part[i]), shift);
    }
    own.mean = sums.mean(shift, this->args.reciprocal);
    own.m2 = sums.total_m2(this->args.reciprocal);
  }
};

}  // namespace cutlass_fused
