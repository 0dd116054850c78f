// Launches tf32x3 kernels, and registers those of an epilogue. Included by generated files only.
#pragma once

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/tf32x3/kernel.cuh"
#include "cutlass_fused/gemm/tf32x3/launch_jobs.cuh"
#include "cutlass_fused/gemm/tf32x3/majors.hpp"
#include "cutlass_fused/gemm/tf32x3/run.hpp"

namespace cutlass_fused {

template <class Tile, Major kMajorX, Major kMajorWeight, bool kWhole, bool kInTf32, class Epilogue>
Status launch_tf32x3(Tf32x3Params<Epilogue> const& params, Device const& device,
                     cudaStream_t stream) {
  static std::atomic<uint64_t> devices{0};
  return launch_jobs<Tile>(gemm_tf32x3<Tile, kMajorX, kMajorWeight, kWhole, kInTf32, Epilogue>,
                           add_parts_tf32x3<Tile, kMajorX, kMajorWeight, Epilogue>, devices, params,
                           device, stream);
}

template <class Tile, bool kWhole, bool kInTf32, bool kAnyMajor, class Epilogue>
Status launch_by_major(Tf32x3Params<Epilogue> const& params, Device const& device,
                       cudaStream_t stream) {
  FloatProduct const& product = params.product;
  return for_majors<kAnyMajor>(product.x.major, product.weight.major, [&](auto x, auto weight) {
    return launch_tf32x3<Tile, x(), weight(), kWhole, kInTf32>(params, device, stream);
  });
}

template <bool kAnyMajor, class Epilogue>
Status run_tile_tf32x3(int tile, Tf32x3Params<Epilogue> const& params, bool whole,
                       Device const& device, cudaStream_t stream) {
  return call_with_tile(TilesTf32x3{}, tile, [&](auto row) {
    using Tile = typename decltype(row)::type;
    if constexpr (arch_of<Tile> == ArchId::kSm80) {
      // Rows that begin anywhere take their time to copy: more than three products do.
      return !whole ? launch_by_major<Tile, false, false, kAnyMajor>(params, device, stream)
             : params.product.in_tf32
                 ? launch_by_major<Tile, true, true, kAnyMajor>(params, device, stream)
                 : launch_by_major<Tile, true, false, kAnyMajor>(params, device, stream);
    }
    return Status::kUnknownTile;
  });
}

template <class Epilogue, bool kAnyMajor>
Status run_tf32x3(FloatProduct const& product, int tile, SharesTf32x3 const& shares,
                  void* workspace, void const* args, bool is_bare, Device const& device,
                  cudaStream_t stream) {
  auto const params = make_params_tf32x3<Epilogue>(product, tile, shares, workspace, args, is_bare);
  bool const whole = has_whole_pieces(product.x) && has_whole_pieces(product.weight);
  return run_tile_tf32x3<kAnyMajor>(tile, params, whole, device, stream);
}

// Of an epilogue that has only some of the kernels (gemm/compiled.hpp): those of three products, of
// matrices that lie in whole pieces, as those of layers do.
template <class Epilogue>
Status run_some_tf32x3(FloatProduct const& product, int tile, SharesTf32x3 const& shares,
                       void* workspace, void const* args, bool is_bare, Device const& device,
                       cudaStream_t stream) {
  bool const whole = has_whole_pieces(product.x) && has_whole_pieces(product.weight);
  if (!whole || product.in_tf32) return Status::kNoKernel;
  auto const params = make_params_tf32x3<Epilogue>(product, tile, shares, workspace, args, is_bare);
  return call_with_tile(TilesTf32x3{}, tile, [&](auto row) {
    using Tile = typename decltype(row)::type;
    if constexpr (arch_of<Tile> == ArchId::kSm80) {
      return for_majors<true, /*kOfLayers=*/true>(
          product.x.major, product.weight.major, [&](auto x, auto weight) {
            return launch_tf32x3<Tile, x(), weight(), true, false>(params, device, stream);
          });
    }
    return Status::kUnknownTile;
  });
}

#define CUTLASS_FUSED_REGISTER_SOME_GEMM_TF32X3(Epilogue)                            \
  CUTLASS_FUSED_REGISTER(register_tf32x3(cutlass_fused::ArchId::kSm80,               \
                                         cutlass_fused::EpilogueId{Epilogue::kName}, \
                                         cutlass_fused::run_some_tf32x3<Epilogue>))

#define CUTLASS_FUSED_REGISTER_GEMM_TF32X3(Epilogue, any_major)                      \
  CUTLASS_FUSED_REGISTER(register_tf32x3(cutlass_fused::ArchId::kSm80,               \
                                         cutlass_fused::EpilogueId{Epilogue::kName}, \
                                         cutlass_fused::run_tf32x3<Epilogue, any_major>))

}  // namespace cutlass_fused
