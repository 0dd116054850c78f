// Launches tf32x3 kernels, and registers those of an epilogue. Included by generated files only.
#pragma once

#include <atomic>

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/tf32x3/kernel.cuh"
#include "cutlass_fused/gemm/tf32x3/majors.hpp"
#include "cutlass_fused/gemm/tf32x3/opt_in.cuh"
#include "cutlass_fused/gemm/tf32x3/run.hpp"

namespace cutlass_fused {

// Of a kernel with this tile; `devices` are those where it may have its shared memory.
template <class Tile, class Epilogue>
Status launch_jobs(void (*kernel)(Tf32x3Params<Epilogue>), std::atomic<uint64_t>& devices,
                   Tf32x3Params<Epilogue> params, Device const& device, cudaStream_t stream) {
  if (!opt_in_to_shared_memory(kernel, Tile::kSharedBytes, device, devices)) {
    return Status::kCudaError;
  }
  FloatProduct const& product = params.product;
  Tf32x3Jobs& jobs = params.jobs;
  jobs.tiles_m = int(ceil_div(product.m, Tile::kM));
  jobs.tiles = jobs.tiles_m * int(ceil_div(product.n, Tile::kN));
  jobs.batch = int(product.batch);
  params.count = jobs.tiles * jobs.batch * jobs.parts;
  if (jobs.parts > 1) {
    size_t const bytes = size_t(jobs.tiles) * jobs.batch * jobs.slices * sizeof(unsigned);
    if (cudaMemsetAsync(params.arrived, 0, bytes, stream) != cudaSuccess) return Status::kCudaError;
  }
  // Blocks whose sums need no exchange take one tile after the other.
  bool const exchanges = !tf32x3::is_persistent<Tile> || jobs.slices * jobs.parts > 1;
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
  cudaError_t const error = cudaLaunchKernelEx(&config, kernel, params);
  if (error == cudaErrorInvalidClusterSize && jobs.slices > 1) {
    cudaGetLastError();  // where the GPU is shared out
    jobs.slices = 1;
    return launch_jobs<Tile>(kernel, devices, params, device, stream);
  }
  return error == cudaSuccess ? Status::kSuccess : Status::kCudaError;
}

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class Epilogue>
Status launch_tf32x3(Tf32x3Params<Epilogue> const& params, Device const& device,
                     cudaStream_t stream) {
  static std::atomic<uint64_t> devices{0};
  return launch_jobs<Tile>(gemm_tf32x3<Tile, kMajorX, kMajorWeight, kWhole, kInTf32, Epilogue>,
                           devices, params, device, stream);
}

template <class Tile, bool kWhole, bool kInTf32, bool kAnyMajor, class Epilogue>
Status launch_by_major(Tf32x3Params<Epilogue> const& params, Device const& device,
                       cudaStream_t stream) {
  FloatProduct const& product = params.product;
  return for_majors<kAnyMajor>(product.x.major, product.weight.major, [&](auto x, auto weight) {
    return launch_tf32x3<Tile, x(), weight(), kWhole, kInTf32>(params, device, stream);
  });
}

template <bool kAnyMajor, class Epilogue, class... Rows>
Status run_tile_tf32x3(TileListTf32x3<Rows...>, int tile, Tf32x3Params<Epilogue> const& params,
                       bool whole, Device const& device, cudaStream_t stream) {
  Status status = Status::kUnknownTile;
  int index = 0;
  auto const run = [&](auto row) {
    using Tile = typename decltype(row)::type;
    // Rows that begin anywhere take their time to copy: more than three products do.
    status = !whole ? launch_by_major<Tile, false, false, kAnyMajor>(params, device, stream)
             : params.product.in_tf32
                 ? launch_by_major<Tile, true, true, kAnyMajor>(params, device, stream)
                 : launch_by_major<Tile, true, false, kAnyMajor>(params, device, stream);
  };
  ((index++ == tile ? run(Rows{}) : void()), ...);
  return status;
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
  if (shares.parts > 1) {
    TileShapeTf32x3 const& shape = TilesTf32x3::kShapes[tile];
    params.arrived = reinterpret_cast<unsigned*>(
        params.partial_sums +
        partial_sums_tf32x3(shape, product.m, product.n, product.batch) * shares.parts);
  }
  return params;
}

template <class Epilogue, bool kAnyMajor>
Status run_tf32x3(FloatProduct const& product, int tile, SharesTf32x3 const& shares,
                  void* workspace, void const* args, bool is_bare, Device const& device,
                  cudaStream_t stream) {
  auto const params = make_params_tf32x3<Epilogue>(product, tile, shares, workspace, args, is_bare);
  bool const whole = has_whole_pieces(product.x) && has_whole_pieces(product.weight);
  return run_tile_tf32x3<kAnyMajor>(TilesTf32x3{}, tile, params, whole, device, stream);
}

#define CUTLASS_FUSED_REGISTER_GEMM_TF32X3(Epilogue, any_major)                      \
  CUTLASS_FUSED_REGISTER(register_tf32x3(cutlass_fused::EpilogueId{Epilogue::kName}, \
                                         cutlass_fused::run_tf32x3<Epilogue, any_major>))

}  // namespace cutlass_fused
