// Launches tf32x3 kernels, and registers those of an epilogue. Included by generated files only.
#pragma once

#include <atomic>

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/tf32x3/kernel.cuh"
#include "cutlass_fused/gemm/tf32x3/run.hpp"

namespace cutlass_fused {

// Once per kernel and GPU: opt in to its shared memory. False on a CUDA error.
template <class Tile>
bool opt_in_tf32x3(void const* kernel, Device const& device, std::atomic<uint64_t>& devices) {
  uint64_t const bit = device.index < 64 ? uint64_t(1) << device.index : 0;
  if (devices.load(std::memory_order_relaxed) & bit) return true;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           Tile::kSharedBytes) != cudaSuccess) {
    return false;
  }
  devices.fetch_or(bit, std::memory_order_relaxed);
  return true;
}

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, class Epilogue>
Status launch_tf32x3(Tf32x3Params<Epilogue> params, Device const& device, cudaStream_t stream) {
  constexpr int kMostBatches = 65535;  // of a grid
  auto* const kernel = gemm_tf32x3<Tile, kMajorX, kMajorWeight, kWhole, Epilogue>;
  static std::atomic<uint64_t> devices{0};
  if (!opt_in_tf32x3<Tile>(reinterpret_cast<void const*>(kernel), device, devices)) {
    return Status::kCudaError;
  }
  FloatProduct& product = params.product;
  params.tiles_m = int(ceil_div(product.m, Tile::kM));
  int64_t const tiles = params.tiles_m * ceil_div(product.n, Tile::kN);
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(params.slices), 1, 1};
  unsigned const count = device.code < 90 ? 0 : params.slices > 1 ? 2 : 1;
  for (int64_t left = product.batch; left > 0; left -= kMostBatches) {
    unsigned const batches = unsigned(std::min<int64_t>(left, kMostBatches));
    cudaLaunchConfig_t const config{dim3(unsigned(tiles * params.slices), 1, batches),
                                    dim3(Tile::kThreads),
                                    size_t(Tile::kSharedBytes),
                                    stream,
                                    attributes,
                                    count};
    if (cudaError_t const error = cudaLaunchKernelEx(&config, kernel, params)) {
      if (error != cudaErrorInvalidClusterSize) return Status::kCudaError;
      cudaGetLastError();  // where the GPU is shared out
      params.slices = 1;
      product.batch = left;
      return launch_tf32x3<Tile, kMajorX, kMajorWeight, kWhole>(params, device, stream);
    }
    product.x.data += kMostBatches * product.x.batch_stride;
    product.weight.data += kMostBatches * product.weight.batch_stride;
    product.y = static_cast<char*>(product.y) +
                kMostBatches * product.y_batch_stride * size_of(product.y_type);
  }
  return Status::kSuccess;
}

template <class Tile, bool kWhole, bool kAnyMajor, class Epilogue>
Status launch_by_major(Tf32x3Params<Epilogue> const& params, Device const& device,
                       cudaStream_t stream) {
  bool const x_is_k = params.product.x.major == Major::kK;
  bool const weight_is_k = params.product.weight.major == Major::kK;
  if (x_is_k && weight_is_k) {
    return launch_tf32x3<Tile, Major::kK, Major::kK, kWhole>(params, device, stream);
  }
  if constexpr (kAnyMajor) {
    return x_is_k ? launch_tf32x3<Tile, Major::kK, Major::kMn, kWhole>(params, device, stream)
           : weight_is_k
               ? launch_tf32x3<Tile, Major::kMn, Major::kK, kWhole>(params, device, stream)
               : launch_tf32x3<Tile, Major::kMn, Major::kMn, kWhole>(params, device, stream);
  }
  return Status::kNoKernel;
}

template <bool kAnyMajor, class Epilogue, class... Rows>
Status run_tile_tf32x3(TileListTf32x3<Rows...>, int tile, Tf32x3Params<Epilogue> const& params,
                       bool whole, Device const& device, cudaStream_t stream) {
  Status status = Status::kUnknownTile;
  int index = 0;
  auto const run = [&](auto row) {
    using Tile = typename decltype(row)::type;
    status = whole ? launch_by_major<Tile, true, kAnyMajor>(params, device, stream)
                   : launch_by_major<Tile, false, kAnyMajor>(params, device, stream);
  };
  ((index++ == tile ? run(Rows{}) : void()), ...);
  return status;
}

template <class Epilogue, bool kAnyMajor>
Status run_tf32x3(FloatProduct const& product, int tile, int slices, void const* args,
                  Device const& device, cudaStream_t stream) {
  auto const& epilogue = *static_cast<typename Epilogue::Args const*>(args);
  bool const stores_whole_pieces = product.y_type == DataType::kFloat32 &&
                                   reinterpret_cast<uintptr_t>(product.y) % 16 == 0 &&
                                   product.ldy % 4 == 0 && product.y_batch_stride % 4 == 0;
  Tf32x3Params<Epilogue> const params{product,
                                      Evaluator<typename Epilogue::Tree>::pack(epilogue.operands()),
                                      /*tiles_m=*/0, slices, stores_whole_pieces};
  bool const whole = has_whole_pieces(product.x) && has_whole_pieces(product.weight);
  return run_tile_tf32x3<kAnyMajor>(TilesTf32x3{}, tile, params, whole, device, stream);
}

#define CUTLASS_FUSED_REGISTER_GEMM_TF32X3(Epilogue, any_major)                      \
  CUTLASS_FUSED_REGISTER(register_tf32x3(cutlass_fused::EpilogueId{Epilogue::kName}, \
                                         cutlass_fused::run_tf32x3<Epilogue, any_major>))

}  // namespace cutlass_fused
