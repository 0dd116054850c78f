// Launches an SM100 kernel, and registers it. Included by a generated file only. No GPU has run it.
#pragma once

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/sm100/kernel.hpp"
#include "cutlass_fused/gemm/sm90/descriptor.hpp"

namespace cutlass_fused {

template <class Tile, class Math, class Epilogue>
Status launch_gemm_sm100(ProductLaunch const& call) {
  using Gemm = GemmSm100<Tile, Math, Epilogue>;
  using Kernel = typename Gemm::Kernel;
  auto* const kernel = gemm_sm100<Tile, Math, Epilogue>;
  // CUTLASS asks the driver for TMA's descriptors, which need the GPU's context.
  if (!bind_context(call.launch.device.index) ||
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           Gemm::kSharedMemory) != cudaSuccess) {
    return Status::kCudaError;
  }
  typename Gemm::Params const params =
      Gemm::make_params(call.gemm, UnpackArgs<Epilogue>::unpack(call), call.launch.device);
  // A cluster of one: the scheduler of tiles asks for the next cluster.
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {1, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = Kernel::get_grid_shape(params);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Gemm::kSharedMemory;
  config.stream = call.launch.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  bool const launched = cudaLaunchKernelEx(&config, kernel, params) == cudaSuccess;
  return launched ? Status::kSuccess : Status::kCudaError;
}

template <class Tile, class Math, class Epilogue>
bool register_gemm_sm100() {
  auto const find_no_workspace = [](GemmArgs const&, Device const&) -> size_t { return 0; };
  return register_kernel({ArchId::kSm100, Math::kId, {}, 0, EpilogueId{Epilogue::kName}},
                         {find_no_workspace, launch_gemm_sm100<Tile, Math, Epilogue>});
}

#define CUTLASS_FUSED_REGISTER_GEMM_SM100(Math, Epilogue) \
  CUTLASS_FUSED_REGISTER(register_gemm_sm100<sm100::Tile, Math, Epilogue>())

}  // namespace cutlass_fused
