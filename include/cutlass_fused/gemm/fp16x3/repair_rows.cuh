// Computes in fp32 what a product of split rows could not: on tensor cores where they can read the
// matrices, else on CUDA cores.
#pragma once

#include <algorithm>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/gemm/fp16x3/repair_rows.hpp"
#include "cutlass_fused/gemm/fp16x3/repair_rows_tf32x3.cuh"
#include "cutlass_fused/gemm/fp16x3/repair_tile.cuh"

namespace cutlass_fused {

constexpr int kRepairBlocksPerSm = 2;

// What the kernel does. kOnlySplit: gemm.weight is null.
template <class Epilogue, bool kOnlySplit>
__device__ __forceinline__ void repair_rows_of_block(RepairRowsParams<Epilogue> const& params) {
  using Tile = RepairTile<Epilogue>;
  __shared__ RepairShared<SimtBlock> shared;
  __shared__ RepairMask<SimtBlock> mask;
  wait_for_previous_kernel();
  allow_next_kernel();
  SimtTiles const tiles(params.gemm);
  auto const tile_at = [&](int64_t i) { return Tile{params, mask, tiles.row(i), tiles.column(i)}; };
  if (!have_lost<Tile, SimtBlock::kThreads>(tile_at, tiles.count)) return;

  for (int64_t i = blockIdx.x; i < tiles.count; i += gridDim.x) {
    Tile const tile = tile_at(i);
    if (!__syncthreads_or(tile.has_lost(int(threadIdx.x) % Tile::kOperandRows))) continue;
    tile.find();
    if constexpr (kOnlySplit) {
      tile.repair_named(params.split_weight, shared);
    } else {
      tile.repair_named(params.weight, shared);
    }
  }
}

template <class Epilogue, bool kOnlySplit>
__global__ void __launch_bounds__(SimtBlock::kThreads, kRepairBlocksPerSm)
    repair_rows(__grid_constant__ RepairRowsParams<Epilogue> const params) {
  repair_rows_of_block<Epilogue, kOnlySplit>(params);
}

// As many blocks as are resident: each looks at its tiles once.
inline KernelLaunch configure_repair_rows(GemmArgs const& gemm, Device const& device,
                                          cudaStream_t stream) {
  int64_t const resident = kRepairBlocksPerSm * device.sm_count;
  dim3 const grid(unsigned(std::min(SimtTiles(gemm).count, resident)));
  return {device, stream, grid, dim3(SimtBlock::kThreads)};
}

template <class Epilogue, bool kAnyMajor>
Status run_repair_rows(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                       SplitMatrix const& x, SplitMatrix const& weight, Device const& device,
                       cudaStream_t stream) {
  auto const params = make_repair_params<Epilogue>(gemm, epilogue, x, weight);
  if (gemm.weight != nullptr) {
    Status const status = run_repair_rows_tf32x3<kAnyMajor>(params, device, stream);
    if (status != Status::kNoKernel) return status;
  }
  KernelLaunch const launch = configure_repair_rows(gemm, device, stream);
  return gemm.weight == nullptr ? launch(repair_rows<Epilogue, true>, params)
                                : launch(repair_rows<Epilogue, false>, params);
}

}  // namespace cutlass_fused
