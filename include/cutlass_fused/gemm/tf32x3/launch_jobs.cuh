// The launch of kernels that share out a product among blocks, and among shares of K.
#pragma once

#include <cuda_runtime.h>

#include <atomic>

#include "cutlass_fused/gemm/opt_in.cuh"
#include "cutlass_fused/gemm/tf32x3/exchange.cuh"
#include "cutlass_fused/gemm/tf32x3/shares.hpp"

namespace cutlass_fused {

// launch(configuration, params) launches the kernel with this tile. What the jobs are is written to
// `params`.
template <class Tile, class Epilogue, class Launch>
Status launch_blocks(Tf32x3Params<Epilogue>& params, Device const& device, cudaStream_t stream,
                     Launch const& launch) {
  FloatProduct const& product = params.product;
  Tf32x3Jobs& jobs = params.jobs;
  jobs.tiles_m = int(ceil_div(product.m, Tile::kM));
  jobs.tiles = jobs.tiles_m * int(ceil_div(product.n, Tile::kN));
  jobs.batch = int(product.batch);
  params.count = jobs.tiles * jobs.batch * jobs.parts;
  // Blocks whose sums need no exchange take one tile after the other.
  bool const exchanges =
      !tf32x3::stores_from_registers<Tile, Epilogue> || jobs.slices * jobs.parts > 1;
  int const blocks = !exchanges ? std::min(params.count, device.sm_count * Tile::kBlocksPerSm)
                                : params.count * jobs.slices;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(jobs.slices), 1, 1};
  unsigned const attribute_count = device.code < 90 ? 0 : jobs.slices > 1 ? 2 : 1;
  cudaLaunchConfig_t const config{
      dim3(unsigned(blocks)), dim3(Tile::kThreads), size_t(Tile::kSharedBytes), stream, attributes,
      attribute_count};
  cudaError_t const error = launch(config, params);
  if (error == cudaErrorInvalidClusterSize && jobs.slices > 1) {
    cudaGetLastError();  // where the GPU is shared out
    jobs.slices = 1;
    return launch_blocks<Tile>(params, device, stream, launch);
  }
  return error == cudaSuccess ? Status::kSuccess : Status::kCudaError;
}

// A kernel with this tile, and that which adds up its parts; `devices` are those where it may have
// its shared memory.
template <class Tile, class Epilogue>
Status launch_jobs(void (*kernel)(Tf32x3Params<Epilogue>),
                   void (*add_parts)(Tf32x3Params<Epilogue>), std::atomic<uint64_t>& devices,
                   Tf32x3Params<Epilogue> params, Device const& device, cudaStream_t stream) {
  if (!opt_in_to_shared_memory(kernel, Tile::kSharedBytes, device, devices)) {
    return Status::kCudaError;
  }
  Status const status = launch_blocks<Tile>(
      params, device, stream,
      [&](cudaLaunchConfig_t const& config, Tf32x3Params<Epilogue> const& given) {
        return cudaLaunchKernelEx(&config, kernel, given);
      });
  Tf32x3Jobs const& jobs = params.jobs;
  if (status != Status::kSuccess || jobs.parts == 1) return status;
  using Block = tf32x3::PartsBlock<Tile>;
  int64_t const own_pieces = Block::kThreads / Block::ranges(jobs);
  dim3 const parts_grid(unsigned(ceil_div(Block::pieces(jobs), own_pieces)));
  return KernelLaunch{device, stream, parts_grid, dim3(Block::kThreads)}(add_parts, params);
}

template <class Epilogue>
Tf32x3Params<Epilogue> make_params_tf32x3(FloatProduct const& product, int tile,
                                          SharesTf32x3 const& shares, void* workspace,
                                          void const* args, bool is_bare) {
  auto const& epilogue = *static_cast<typename Epilogue::Args const*>(args);
  Tf32x3Params<Epilogue> params{};
  params.product = product;
  params.operands = Evaluator<typename Epilogue::Tree>::pack(epilogue.operands());
  params.jobs.slices = shares.slices;
  params.jobs.parts = shares.parts;
  params.stores_whole_pieces =
      reinterpret_cast<uintptr_t>(product.y) % (4 * size_of(product.y_type)) == 0 &&
      product.ldy % 4 == 0 && product.y_batch_stride % 4 == 0;
  params.is_bare = is_bare;
  params.partial_sums = static_cast<float*>(workspace);
  return params;
}

// call(row) of the tile of this index.
template <class... Rows, class Call>
Status call_with_tile(TileListTf32x3<Rows...>, int tile, Call const& call) {
  Status status = Status::kUnknownTile;
  int index = 0;
  ((index++ == tile ? void(status = call(Rows{})) : void()), ...);
  return status;
}

}  // namespace cutlass_fused
