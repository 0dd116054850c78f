// A product of fp32 matrices in one launch, from the matrices as they lie: tf32x3, split in
// registers. It serves where a pass that splits rows beforehand would cost more than it saves.
#pragma once

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/tf32x3/mainloop.cuh"
#include "cutlass_fused/gemm/tf32x3/exchange.cuh"

namespace cutlass_fused {
namespace tf32x3 {

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class Epilogue,
          class X = float>
struct Kernel {
  using Mainloop = tf32x3::Mainloop<Tile, kMajorX, kMajorWeight, kWhole, kInTf32, X>;
  using Store = tf32x3::Store<kMajorX, kMajorWeight, Epilogue, X>;
  using Exchange = tf32x3::Exchange<Tile, Mainloop, Store, Epilogue>;

  Tf32x3Params<Epilogue> const& params;
  Mainloop mainloop;

  __device__ Kernel(Tf32x3Params<Epilogue> const& params, float* shared)
      : params(params), mainloop(shared) {}

  __device__ void run() const {
    Tf32x3Jobs const& jobs = params.jobs;
    Job job = locate(int(blockIdx.x) / jobs.slices);
    typename Mainloop::Feeder feeder(params.product, jobs, job);
    int const step = int(gridDim.x) / jobs.slices;
    wait_for_previous_kernel();
    allow_next_kernel();
    auto const load = [&](int stage) {
      feeder.load(mainloop.shared + stage * Mainloop::kStageFloats, step, params.count);
    };
    int stage = 0;
    typename Mainloop::OperandX x;
    typename Mainloop::OperandWeight weight;
    mainloop.begin(load, stage, x, weight);
#pragma unroll 1
    for (;;) {
      WarpSums sums = {};
      mainloop.add_products(job.template steps<Tile>(), load, stage, x, weight, sums);
      if (!stores_directly()) {
        mainloop.share_sums(sums);
        return Exchange(params, mainloop.shared).run(job);
      }
      store_sums(job, sums);
      int const next = job.number + step;
      if (next >= params.count) return;
      job = locate(next);
    }
  }

 private:
  // Whether the sums of a warp are complete, so that they need not be exchanged.
  __device__ bool stores_directly() const {
    return stores_from_registers<Tile, Epilogue> && params.jobs.slices * params.jobs.parts == 1;
  }

  __device__ Job locate(int number) const {
    return Job::locate(params.jobs, int(params.product.k), number, Tile{});
  }

  __device__ void store_sums(Job const& job, WarpSums const& sums) const {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      int const n = job.n0 + 4 * mainloop.piece_at(column);
      if (n >= params.product.n) continue;
      Store const store(params, job.batch, n);
      int const first = job.m0 + mainloop.first_row();
      constexpr int kAhead =
          2;  // rows for which a thread has registers to read an operand of y's shape
      typename Store::Elements elements[kAhead];
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        if (row % kAhead == 0) {
#pragma unroll
          for (int i = 0; i < kAhead; ++i) {
            if (first + row + i < params.product.m) elements[i] = store.fetch(first + row + i);
          }
        }
        int const m = first + row;
        if (m < params.product.m) {
          store(m, unscale(Mainloop::piece_of(sums, row, column)), elements[row % kAhead]);
        }
      }
    }
  }
};

}  // namespace tf32x3

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_tf32x3(__grid_constant__ Tf32x3Params<Epilogue> const params) {
  extern __shared__ __align__(128) float shared[];
  tf32x3::Kernel<Tile, kMajorX, kMajorWeight, kWhole, kInTf32, Epilogue>(params, shared).run();
}

}  // namespace cutlass_fused
