// The repair of a product of split rows where it is much: by the mainloop of tf32x3, which reads
// the fp32 matrices as they lie, whatever their magnitudes. Of columns of x that span 40 binades
// every output is to be computed again.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/fp16x3/repair_tile.cuh"
#include "cutlass_fused/gemm/tf32x3/mainloop.cuh"
#include "cutlass_fused/gemm/tf32x3/majors.hpp"
#include "cutlass_fused/gemm/opt_in.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct RepairRowsTf32x3Params {
  RepairRowsParams<Epilogue> rows;
  FloatProduct product;
  Tf32x3Jobs jobs;
};

namespace tf32x3 {

// Large enough to be fast, and small enough for two blocks to an SM of 8.0 and of 9.0.
using RepairBlock = TileTf32x3<64, 64, 32, 1, 4, 2>;
constexpr int kStepsOfSum = 2048 / RepairBlock::kK;
constexpr int kSumsOfThread = sizeof(WarpSums) / sizeof(float);
// Stages, and totals of sums behind them.
constexpr int kRepairBytes =
    RepairBlock::kSharedBytes + int(sizeof(WarpSums)) * RepairBlock::kThreads;

template <class Mainloop, class Epilogue>
struct Repair {
  using Block = SimtBlockOf<RepairBlock::kN, RepairBlock::kThreads>;  // of what remains
  using Tile = RepairTile<Epilogue, Block>;
  using Operands = Columns<typename Epilogue::Tree>;
  static_assert(Tile::kRows == RepairBlock::kM && Tile::kColumns == RepairBlock::kN &&
                Tile::kOperandRows == Block::kThreads);
  static_assert(sizeof(RepairShared<Block>) <= RepairBlock::kSharedBytes);

  RepairRowsTf32x3Params<Epilogue> const& params;
  Mainloop mainloop;
  RepairMask<Block>& mask;

  __device__ void run() const {
    int const count = params.jobs.tiles;
    auto const tile_at = [&](int64_t i) {
      return Tile{params.rows, mask, first_row(int(i)), first_column(int(i))};
    };
    if (!have_lost<Tile, Block::kThreads>(tile_at, count)) return;

#pragma unroll 1
    for (int i = int(blockIdx.x); i < count; i += int(gridDim.x)) {
      Tile const tile = tile_at(i);
      if (!__syncthreads_or(tile.has_lost(int(threadIdx.x)))) continue;
      if (tile.find()) multiply(i);
      // Few outputs, and what is not finite: there is no lo of an infinity.
      tile.repair_named(params.rows.weight,
                        *reinterpret_cast<RepairShared<Block>*>(mainloop.shared));
    }
  }

 private:
  // Tiles below each other follow each other, so that L2 keeps the weight's rows.
  __device__ int first_row(int i) const { return i % params.jobs.tiles_m * Tile::kRows; }
  __device__ int first_column(int i) const { return i / params.jobs.tiles_m * Tile::kColumns; }

  __device__ void multiply(int tile) const {
    Job const job{tile, /*batch=*/0, first_row(tile), first_column(tile), 0, int(params.product.k)};
    typename Mainloop::Feeder feeder(params.product, params.jobs, job);
    auto const load = [&](int stage) {
      constexpr int kNoOther = std::numeric_limits<int>::min();
      feeder.load(mainloop.shared + stage * Mainloop::kStageFloats, 0, kNoOther);
    };
    int stage = 0;
    typename Mainloop::OperandX x;
    typename Mainloop::OperandWeight weight;
    mainloop.begin(load, stage, x, weight);
    WarpSums sums = {};
    int const steps = job.template steps<RepairBlock>();
#pragma unroll 1
    for (int done = 0; done < steps; done += kStepsOfSum) {
      mainloop.add_products(min(kStepsOfSum, steps - done), load, stage, x, weight, sums);
      add_to_totals(sums, done == 0, done + kStepsOfSum >= steps);
    }
    mainloop.share_sums(sums);
    __syncthreads();
    store_named(job);
  }

  // One sequence of sums over all of K would err more than cuBLAS's sums, which are shared out: a
  // thread adds its sums of every 2048 of K to totals, which lie behind the stages. At the end
  // of K `sums` become the totals, before it zeros.
  __device__ void add_to_totals(WarpSums& sums, bool is_first, bool is_last) const {
    float* const totals = mainloop.shared + RepairBlock::kSharedBytes / 4 + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kSumsOfThread; ++i) {
      float& total = totals[i * RepairBlock::kThreads];
      float const sum = is_first ? sum_at(sums, i) : total + sum_at(sums, i);
      total = sum;
      sum_at(sums, i) = is_last ? sum : 0.0f;
    }
  }

  // What the mask names and is finite, of which it names nothing then. A warp has a word of it.
  __device__ void store_named(Job const& job) const {
    GemmArgs const& gemm = params.rows.gemm;
    int const column = int(threadIdx.x) % Tile::kColumns;
    int64_t const n = job.n0 + column;
    float values[Operands::kRows > 0 ? Operands::kRows : 1];
    Operands::load(params.rows.operands, std::min<int64_t>(n, gemm.n - 1), values, 1);
#pragma unroll 4
    for (int row = int(threadIdx.x) / Tile::kColumns; row < Tile::kRows;
         row += Block::kThreads / Tile::kColumns) {
      float const* const piece = &Mainloop::sums_at(mainloop.shared, 0, row, column / 4)->x;
      float const sum = piece[column % 4] * kUnscale;
      bool const is_named = mask.has(row, column), is_done = is_named && isfinite(sum);
      unsigned const rest = __ballot_sync(0xffffffffu, is_named && !is_done);
      if (threadIdx.x % 32 == 0) mask.words[(row * Tile::kColumns + column) / 32] = rest;
      if (!is_done) continue;
      int64_t const m = job.m0 + row;
      float const value = Operands::apply(params.rows.operands, values, 1, sum, m, n,
                                          Operands::fetch(params.rows.operands, m, n));
      store_from_float(gemm.y, m * gemm.ldy + n, gemm.y_type, value);
    }
    __syncthreads();
  }
};

}  // namespace tf32x3

template <Major kMajorX, Major kMajorWeight, bool kWhole, class Epilogue>
__global__ void __launch_bounds__(tf32x3::RepairBlock::kThreads, tf32x3::RepairBlock::kBlocksPerSm)
    repair_rows_tf32x3(__grid_constant__ RepairRowsTf32x3Params<Epilogue> const params) {
  using namespace tf32x3;
  using Loop = Mainloop<RepairBlock, kMajorX, kMajorWeight, kWhole, /*kInTf32=*/false>;
  extern __shared__ __align__(128) float shared[];
  __shared__ RepairMask<typename Repair<Loop, Epilogue>::Block> mask;
  wait_for_previous_kernel();
  allow_next_kernel();
  Repair<Loop, Epilogue>{params, Loop(shared), mask}.run();
}

// So many blocks that take every so-manieth of tiles tiles, of which tiles_m lie below each other.
// Where a single row of x or of weight lost something, no block gets two of its tiles.
inline int count_repair_blocks(int tiles, int tiles_m, int resident) {
  if (tiles <= resident) return tiles;
  while (std::gcd(resident, tiles_m) > 1) --resident;
  return resident;
}

// kNoKernel: it cannot read operands of this order.
template <bool kAnyMajor, class Epilogue>
Status run_repair_rows_tf32x3(RepairRowsParams<Epilogue> const& rows, Device const& device,
                              cudaStream_t stream) {
  using Block = tf32x3::RepairBlock;
  FloatProduct const product = make_float_product(rows.gemm);
  int const tiles_m = int(ceil_div(product.m, Block::kM));
  int const tiles = tiles_m * int(ceil_div(product.n, Block::kN));
  RepairRowsTf32x3Params<Epilogue> const params{
      rows, product, {tiles_m, tiles, /*batch=*/1, /*slices=*/1, /*parts=*/1}};
  // As many blocks as are resident: each looks at its tiles once. Where SMs are left over, none
  // gets two blocks: one that asks for more than half of the shared memory shares no SM.
  int const resident = Block::kBlocksPerSm * device.sm_count;
  int const most_bytes = std::max(tf32x3::kRepairBytes, device.shared_memory / 2 + 1024);
  int const bytes = tiles <= device.sm_count ? most_bytes : tf32x3::kRepairBytes;
  dim3 const grid(unsigned(count_repair_blocks(tiles, tiles_m, resident)));
  KernelLaunch const launch{device, stream, grid, dim3(Block::kThreads), size_t(bytes)};
  bool const whole = has_whole_pieces(product.x) && has_whole_pieces(product.weight);
  return for_majors<kAnyMajor>(product.x.major, product.weight.major, [&](auto x, auto weight) {
    auto const run = [&](auto is_whole) {
      auto* const kernel = repair_rows_tf32x3<x(), weight(), is_whole(), Epilogue>;
      static std::atomic<uint64_t> devices{0};
      if (!opt_in_to_shared_memory(kernel, most_bytes, device, devices)) {
        return Status::kCudaError;
      }
      return launch(kernel, params);
    };
    return whole ? run(std::true_type{}) : run(std::false_type{});
  });
}

}  // namespace cutlass_fused
