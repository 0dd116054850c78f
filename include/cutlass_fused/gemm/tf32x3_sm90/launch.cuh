// Launches the SM90 kernels of tf32x3, and registers those of an epilogue. Included by generated
// files only.
#pragma once

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/tf32x3/launch_jobs.cuh"
#include "cutlass_fused/gemm/tf32x3/majors.hpp"
#include "cutlass_fused/gemm/tf32x3/run.hpp"
#include "cutlass_fused/gemm/tf32x3_sm90/kernel.cuh"

namespace cutlass_fused {

template <class Tile, Major kMajorX, Major kMajorWeight, class Epilogue>
Status launch_tf32x3_sm90(Tf32x3Params<Epilogue> const& params, Device const& device,
                          cudaStream_t stream) {
  static std::atomic<uint64_t> devices{0};
  return launch_jobs<Tile>(gemm_tf32x3_sm90<Tile, kMajorX, kMajorWeight, Epilogue>,
                           add_parts_tf32x3<Tile, kMajorX, kMajorWeight, Epilogue>, devices, params,
                           device, stream);
}

// Whatever the precision, there are three products.
template <class Epilogue, bool kAnyMajor, bool kOfLayers = false>
Status run_tf32x3_sm90(FloatProduct const& product, int tile, SharesTf32x3 const& shares,
                       void* workspace, void const* args, bool is_bare, Device const& device,
                       cudaStream_t stream) {
  bool const whole = has_whole_pieces(product.x) && has_whole_pieces(product.weight);
  if (!whole || product.y_type != DataType::kFloat32) return Status::kNoKernel;
  auto const params = make_params_tf32x3<Epilogue>(product, tile, shares, workspace, args, is_bare);
  return call_with_tile(TilesTf32x3{}, tile, [&](auto row) {
    using Tile = typename decltype(row)::type;
    if constexpr (arch_of<Tile> == ArchId::kSm90) {
      return for_majors<kAnyMajor, kOfLayers>(
          product.x.major, product.weight.major, [&](auto x, auto weight) {
            return launch_tf32x3_sm90<Tile, x(), weight()>(params, device, stream);
          });
    }
    return Status::kUnknownTile;
  });
}

#define CUTLASS_FUSED_REGISTER_GEMM_TF32X3_SM90(Epilogue, any_major)                 \
  CUTLASS_FUSED_REGISTER(register_tf32x3(cutlass_fused::ArchId::kSm90,               \
                                         cutlass_fused::EpilogueId{Epilogue::kName}, \
                                         cutlass_fused::run_tf32x3_sm90<Epilogue, any_major>))

#define CUTLASS_FUSED_REGISTER_SOME_GEMM_TF32X3_SM90(Epilogue)                       \
  CUTLASS_FUSED_REGISTER(register_tf32x3(cutlass_fused::ArchId::kSm90,               \
                                         cutlass_fused::EpilogueId{Epilogue::kName}, \
                                         cutlass_fused::run_tf32x3_sm90<Epilogue, true, true>))

}  // namespace cutlass_fused
