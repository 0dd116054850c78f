// What the blocks of a tf32x3 kernel compute: a tile of one product of the batch each, over a share
// of K, or several one behind the other.
#pragma once

#include "cutlass_fused/gemm/tf32x3/load.cuh"

namespace cutlass_fused {

// K is cut into `parts` of the grid, and each of them into `slices`, which are blocks of a cluster.
struct Tf32x3Jobs {
  int tiles_m, tiles, batch;  // tiles: of one product
  int slices, parts;
};

namespace tf32x3 {

// A number for each tile, product and part: those of a part follow each other.
struct Job {
  int number, batch;
  int m0, n0;          // of the tile
  int k_begin, k_end;  // of the block

  template <class Tile>
  __device__ static Job locate(Tf32x3Jobs const& jobs, int k, int number, Tile const&) {
    Job job;
    job.number = number;
    int const of_part = jobs.tiles * jobs.batch, rest = number % of_part, tile = rest % jobs.tiles;
    int const part = number / of_part;
    job.batch = rest / jobs.tiles;
    job.m0 = tile % jobs.tiles_m * Tile::kM;
    job.n0 = tile / jobs.tiles_m * Tile::kN;
    int const steps = (k + Tile::kK - 1) / Tile::kK, shares = jobs.parts * jobs.slices;
    int const share = part * jobs.slices + int(blockIdx.x) % jobs.slices;
    // The first shares have the steps that are left over.
    int const own = steps / shares, more = steps % shares;
    int const first = own * share + min(share, more);
    job.k_begin = first * Tile::kK;
    job.k_end = min(k, (first + own + (share < more ? 1 : 0)) * Tile::kK);
    return job;
  }
  template <class Tile>
  __device__ int steps() const {
    return (k_end - k_begin + Tile::kK - 1) / Tile::kK;
  }
};

// Whether blocks take one job after the other: those whose sums need no exchange may.
template <class Tile>
constexpr bool is_persistent = Tile::kWarpsK == 1;

// Loads the stages of a block's jobs, as if they were those of one: those of the next job while the
// sums of one before it are stored.
template <class Tile, class LoaderX, class LoaderWeight>
class Feeder {
 public:
  __device__ Feeder(FloatProduct const& product, Tf32x3Jobs const& jobs, Job const& job)
      : product_(product),
        jobs_(jobs),
        number_(job.number),
        k_left_(job.k_end - job.k_begin),
        x_(product.x, job.batch, job.m0, int(product.m), job.k_begin),
        weight_(product.weight, job.batch, job.n0, int(product.n), job.k_begin) {}

  // The next stage, if there is one; a group of copies in any case. `step`, `end`: of the numbers
  // of the block's jobs.
  __device__ void load(float* stage, int step, int end) {
    if (k_left_ > 0) {
      x_.load(stage, k_left_);
      weight_.load(stage + LoaderX::Stage::kFloats, k_left_);
      k_left_ -= Tile::kK;
      if constexpr (is_persistent<Tile>) {
        if (k_left_ <= 0) go_on(step, end);
      }
    }
    close_group();
  }

 private:
  __device__ void go_on(int step, int end) {
    number_ += step;
    if (number_ >= end) return;
    Job const job = Job::locate(jobs_, int(product_.k), number_, Tile{});
    k_left_ = job.k_end - job.k_begin;
    x_ = LoaderX(product_.x, job.batch, job.m0, int(product_.m), job.k_begin);
    weight_ = LoaderWeight(product_.weight, job.batch, job.n0, int(product_.n), job.k_begin);
  }

  FloatProduct const& product_;
  Tf32x3Jobs const& jobs_;
  int number_, k_left_;
  LoaderX x_;
  LoaderWeight weight_;
};

}  // namespace tf32x3
}  // namespace cutlass_fused
