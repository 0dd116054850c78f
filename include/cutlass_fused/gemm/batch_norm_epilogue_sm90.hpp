// The epilogue of a product with the batch norm of its own batch behind it, before anything is
// written: z stays in registers until its statistics are there.
//
// The tiles of all rows of the batch are computed at the same time, as a group: each publishes the
// mean and M2 of its rows, waits for those of the others, and merges all of them. Every block does
// so in the same order: two runs give the same bits. run_batch_norm_sm90.hpp tells why none waits
// forever.
#pragma once

#include "cutlass_fused/epilogue/scale_bias.hpp"
#include "cutlass_fused/gemm/part_statistics.hpp"
#include "cutlass_fused/gemm/registers_epilogue_sm90.hpp"
#include "cutlass_fused/gemm/tile_moments_sm90.hpp"
#include "cutlass_fused/kernel/move_running.cuh"

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
  static constexpr int kSharers = TileThread::kQuad / TileThread::kPair;

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
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < TileThread::kPair; ++pair) {
      publish_quad(find_moments(z, at, pair, rows), at, parts, tile, pair);
    }
    Own own{at.feature(at.quad_lane % TileThread::kPair)};
    int const n = min(own.n, features - 1);
    float const gamma = this->args.gamma(n), beta = this->args.beta(n);
    merge(parts, n, at.quad_lane / TileThread::kPair, rows, own);
    own.rstd = float(1.0 / sqrt(own.m2 / rows + double(this->args.eps)));
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < TileThread::kPair; ++pair) {
      float const mean = __shfl_sync(~0u, float(own.mean), pair, TileThread::kQuad);
      float const a = __shfl_sync(~0u, gamma * own.rstd, pair, TileThread::kQuad);
      float const d = __shfl_sync(~0u, beta, pair, TileThread::kQuad);
      z.for_each(at, pair, [&](float& value, int) { value = fmaf(value - mean, a, d); });
    }
    return own;
  }

  // Waits for the parts of a feature: this thread for every other one, from `first` on. Several
  // loads at once, as the way to memory is long.
  CUTLASS_DEVICE static void merge(PartStatistics const& parts, int n, int first, int rows,
                                   Own& own) {
    constexpr int kAtOnce = 8;
    int const tiles = (rows + kRows - 1) / kRows;
    PartSums sums;
    uint64_t zeroth = parts.peek(0, n);
    auto const shift = [&] {
      while (zeroth == PartStatistics::kMissing) zeroth = parts.peek(0, n);
      return double(PartStatistics::unpack(zeroth).x);
    };
    for (int begin = first; begin < tiles; begin += kAtOnce * kSharers) {
      uint64_t part[kAtOnce];
      auto const tile = [&](int i) { return min(begin + i * kSharers, tiles - 1); };
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) part[i] = parts.peek(tile(i), n);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        while (part[i] == PartStatistics::kMissing) part[i] = parts.peek(tile(i), n);
        int const count = min(rows - (begin + i * kSharers) * kRows, kRows);
        if (count > 0) sums.add(count, PartStatistics::unpack(part[i]), shift());
      }
    }
    sums.add({__shfl_xor_sync(~0u, sums.d, TileThread::kPair),
              __shfl_xor_sync(~0u, sums.dd, TileThread::kPair),
              __shfl_xor_sync(~0u, sums.m2, TileThread::kPair)});
    double const reciprocal = 1.0 / rows;
    own.mean = sums.mean(shift(), reciprocal);
    own.m2 = sums.total_m2(reciprocal);
  }
};

}  // namespace cutlass_fused
