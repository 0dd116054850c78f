// Lays out the workspace of an SM80 kernel, launches it, and registers it. Included by generated
// files only, each of which registers some combinations.
#pragma once

#include <algorithm>
#include <atomic>

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/sm80/kernel.hpp"

namespace cutlass_fused {

// Once per kernel and GPU: opt in to its shared memory, and count the blocks that one SM holds.
// Two threads that come first together do the same work twice, which is harmless. Returns 0 on a
// CUDA error.
template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
int resident_blocks_of_compiled(Device const& device) {
  using Gemm = GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>;
  constexpr int kMaxDevices = 64;
  static std::atomic<int> cache[kMaxDevices];
  int const slot = device.index % kMaxDevices;
  bool const cached = device.index < kMaxDevices;
  int blocks = cached ? cache[slot].load(std::memory_order_relaxed) : 0;
  if (blocks > 0) return blocks;
  auto* const kernel = gemm_sm80<Tile, Math, Epilogue, kAlignmentBytes>;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           Gemm::kSharedMemory) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, Gemm::kThreads,
                                                    Gemm::kSharedMemory) != cudaSuccess) {
    return 0;
  }
  if (cached) cache[slot].store(blocks, std::memory_order_relaxed);
  return blocks;
}

// The blocks of an open kernel that one SM holds whatever registers its program takes. Whoever
// loads the kernel has opted in to its shared memory.
template <class Gemm>
int resident_blocks_of_open(Device const& device) {
  constexpr int kRegistersOfSm = 64 * 1024, kMostRegisters = 255, kSharedMemoryOfSystem = 1024;
  int const by_memory = (device.shared_memory + kSharedMemoryOfSystem) /
                        (Gemm::kSharedMemory + kSharedMemoryOfSystem);
  int const by_registers = kRegistersOfSm / (kMostRegisters * Gemm::kThreads);
  return std::max(1, std::min(by_memory, by_registers));
}

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
int resident_blocks(Device const& device) {
  if constexpr (OpenCall<Epilogue>::kIsOpen) {
    return resident_blocks_of_open<GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>>(device);
  } else {
    return resident_blocks_of_compiled<Tile, Math, Epilogue, kAlignmentBytes>(device);
  }
}

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
size_t find_workspace_sm80(GemmArgs const& gemm, Device const& device) {
  using Gemm = GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>;
  if constexpr (Gemm::kStreamK) {
    int const resident = resident_blocks<Tile, Math, Epilogue, kAlignmentBytes>(device);
    return Gemm::params(gemm, {}, device.sm_count, resident).get_workspace_size();
  }
  return 0;
}

// As CUDA's runtime launches it.
template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
void const* find_entry_sm80(ProductLaunch const& call) {
  if constexpr (OpenCall<Epilogue>::kIsOpen) {
    return OpenCall<Epilogue>::entry(call);
  } else {
    return reinterpret_cast<void const*>(gemm_sm80<Tile, Math, Epilogue, kAlignmentBytes>);
  }
}

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
Status launch_gemm_sm80(ProductLaunch const& call) {
  using Gemm = GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>;
  Launch const& launch = call.launch;
  int const resident = resident_blocks<Tile, Math, Epilogue, kAlignmentBytes>(launch.device);
  if (resident == 0) return Status::kCudaError;
  typename Gemm::Params params =
      Gemm::params(call.gemm, UnpackArgs<Epilogue>::unpack(call), launch.device.sm_count, resident);
  if constexpr (Gemm::kStreamK) {
    if (params.init_workspace(launch.workspace, launch.stream) != cutlass::Status::kSuccess) {
      return Status::kCudaError;
    }
  }
  void* arguments[] = {&params};
  cudaError_t const error = cudaLaunchKernel(
      find_entry_sm80<Tile, Math, Epilogue, kAlignmentBytes>(call), params.get_grid_dims(),
      dim3(Gemm::kThreads), arguments, Gemm::kSharedMemory, launch.stream);
  return error == cudaSuccess ? Status::kSuccess : Status::kCudaError;
}

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
void register_tile_sm80(EpilogueId name, int tile) {
  register_kernel({ArchId::kSm80, Math::kId, {}, tile, name},
                  {find_workspace_sm80<Tile, Math, Epilogue, kAlignmentBytes>,
                   launch_gemm_sm80<Tile, Math, Epilogue, kAlignmentBytes>});
}

template <class Math, class Epilogue, class... Rows>
void register_tiles_sm80(EpilogueId name, TileList<Rows...>) {
  int tile = 0;
  (register_tile_sm80<typename Rows::type, Math, Epilogue, 16>(name, tile++), ...);
}

// All tiles, and the kernels for rows that are aligned to fewer bytes.
template <class Math, class Epilogue>
bool register_gemm_sm80() {
  constexpr EpilogueId kName{Epilogue::kName};
  register_tiles_sm80<Math, Epilogue>(kName, typename TilesSm80For<Math>::type{});
  if constexpr (!splits_rows(Math::kEngine)) {
    register_tile_sm80<NarrowTilesSm80::Narrow4, Math, Epilogue, 4>(kName, kNarrow4Tile);
    register_tile_sm80<NarrowTilesSm80::Narrow2, Math, Epilogue, 2>(kName, kNarrow2Tile);
  }
  return true;
}

#define CUTLASS_FUSED_REGISTER_GEMM_SM80(Math, Epilogue) \
  CUTLASS_FUSED_REGISTER(register_gemm_sm80<Math, Epilogue>())

}  // namespace cutlass_fused
