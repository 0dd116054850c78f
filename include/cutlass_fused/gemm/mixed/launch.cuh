// Launches kernels of 16-bit x and an fp32 weight, and registers those of an epilogue. Included by
// generated files only.
#pragma once

#include "cutlass_fused/gemm/mixed/load.cuh"
#include "cutlass_fused/gemm/mixed/multiply.cuh"
#include "cutlass_fused/gemm/mixed/run.hpp"
#include "cutlass_fused/gemm/tf32x3/launch.cuh"

namespace cutlass_fused {

// gemm_tf32x3 (gemm/tf32x3/kernel.cuh) of x as it lies, whose numbers are not split.
template <class Tile, class X, Major kMajorWeight, class Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_mixed(__grid_constant__ Tf32x3Params<Epilogue> const params) {
  extern __shared__ __align__(128) float shared[];
  tf32x3::Kernel<Tile, Major::kK, kMajorWeight, /*kWhole=*/true, /*kInTf32=*/false, Epilogue, X>(
      params, shared)
      .run();
}

template <class Tile, class X, Major kMajorWeight, class Epilogue>
Status launch_mixed(Tf32x3Params<Epilogue> const& params, Device const& device,
                    cudaStream_t stream) {
  static std::atomic<uint64_t> devices{0};
  return launch_jobs<Tile>(gemm_mixed<Tile, X, kMajorWeight, Epilogue>,
                           add_parts_tf32x3<Tile, Major::kK, kMajorWeight, Epilogue, X>, devices,
                           params, device, stream);
}

template <class X, class Epilogue>
Status run_tile_mixed(int tile, Tf32x3Params<Epilogue> const& params, Device const& device,
                      cudaStream_t stream) {
  return call_with_tile(TilesTf32x3{}, tile, [&](auto row) {
    using Row = decltype(row);
    if constexpr (has_mixed_kernels(Row::kShape)) {
      using Tile = typename Row::type;
      return params.product.weight.major == Major::kK
                 ? launch_mixed<Tile, X, Major::kK>(params, device, stream)
                 : launch_mixed<Tile, X, Major::kMn>(params, device, stream);
    }
    return Status::kUnknownTile;
  });
}

template <class Epilogue>
Status run_mixed(FloatProduct const& product, DataType x_type, int tile, SharesTf32x3 const& shares,
                 void* workspace, void const* args, bool is_bare, Device const& device,
                 cudaStream_t stream) {
  auto const params = make_params_tf32x3<Epilogue>(product, tile, shares, workspace, args, is_bare);
  return for_type(x_type, [&](auto type) {
    if constexpr (size_of(type()) == 2) {
      return run_tile_mixed<Storage<type()>>(tile, params, device, stream);
    }
    return Status::kNoKernel;
  });
}

#define CUTLASS_FUSED_REGISTER_GEMM_MIXED(Epilogue)                                 \
  CUTLASS_FUSED_REGISTER(register_mixed(cutlass_fused::EpilogueId{Epilogue::kName}, \
                                        cutlass_fused::run_mixed<Epilogue>))

}  // namespace cutlass_fused
