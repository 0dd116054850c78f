// run_gemm<Sm80, Math, Epilogue>: choose a kernel, lay out its workspace, launch it.
// Included by generated files only, each of which instantiates some combinations.
#pragma once

#include <atomic>

#include "cutlass_fused/epilogue/unscaled.hpp"
#include "cutlass_fused/gemm/sm80/kernel.hpp"
#include "cutlass_fused/plan/log_choice.hpp"

namespace cutlass_fused {

// Once per kernel and GPU: opt in to its shared memory, and count the blocks that one SM holds.
// Two threads that come first together do the same work twice, which is harmless. Returns 0 on a
// CUDA error.
template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
int resident_blocks(Device const& device) {
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

// Calls visit(tile) for the tile at `index` of the list.
template <class Visit, class... Rows>
void visit_tile(TileList<Rows...>, int index, Visit&& visit) {
  int i = 0;
  (void)((i++ == index && (visit(typename Rows::type{}), true)) || ...);
}

// Calls visit(tile, alignment) with the types that the choice stands for.
template <class Math, class Visit>
void visit_choice(Choice const& choice, Visit&& visit) {
  using Align16 = std::integral_constant<int, 16>;
  using Align4 = std::integral_constant<int, 4>;
  using Align2 = std::integral_constant<int, 2>;
  switch (choice.kind) {
    case KernelKind::kAligned:
      visit_tile(typename TilesSm80For<Math>::type{}, choice.tile,
                 [&](auto tile) { visit(tile, Align16{}); });
      break;
    case KernelKind::kNarrow4:
      if constexpr (!splits_rows(Math::kEngine)) visit(NarrowTilesSm80::Narrow4{}, Align4{});
      break;
    case KernelKind::kNarrow2:
      if constexpr (size_of(Math::kIn) == 2) visit(NarrowTilesSm80::Narrow2{}, Align2{});
      break;
    default:
      break;
  }
}

template <class Math>
std::string name_kernel(Choice const& choice) {
  switch (choice.kind) {
    case KernelKind::kAligned:
      return TilesSm80For<Math>::type::kShapes[choice.tile].name();
    case KernelKind::kNarrow4:
      return "rows aligned to 4 bytes";
    case KernelKind::kNarrow2:
      return "rows aligned to 2 bytes";
    default:
      return "none";
  }
}

template <class Arch, class Math, class Epilogue>
size_t workspace_size(GemmArgs const& gemm, Choice const& choice, Device const& device) {
  size_t bytes = 0;
  visit_choice<Math>(choice, [&](auto tile, auto alignment) {
    using Tile = decltype(tile);
    using Gemm = GemmSm80<Tile, Math, Epilogue, alignment.value>;
    if constexpr (Gemm::kStreamK) {
      int const resident = resident_blocks<Tile, Math, Epilogue, alignment.value>(device);
      bytes = Gemm::params(gemm, {}, device.sm_count, resident).get_workspace_size();
    }
  });
  return bytes;
}

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
Status launch_gemm_sm80(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                        Launch const& launch) {
  using Gemm = GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>;
  int const resident = resident_blocks<Tile, Math, Epilogue, kAlignmentBytes>(launch.device);
  if (resident == 0) return Status::kCudaError;
  typename Gemm::Params params = Gemm::params(gemm, epilogue, launch.device.sm_count, resident);
  if constexpr (Gemm::kStreamK) {
    if (params.init_workspace(launch.workspace, launch.stream) != cutlass::Status::kSuccess) {
      return Status::kCudaError;
    }
  }
  gemm_sm80<Tile, Math, Epilogue, kAlignmentBytes>
      <<<params.get_grid_dims(), dim3(Gemm::kThreads), Gemm::kSharedMemory, launch.stream>>>(
          params);
  return cudaPeekAtLastError() == cudaSuccess ? Status::kSuccess : Status::kCudaError;
}

template <class Arch, class Math, class Epilogue>
Status run_gemm(GemmArgs const& gemm, Choice const& choice, typename Epilogue::Args const& epilogue,
                Launch const& launch) {
  if (logs_choices()) {
    log_choice<Math>("sm80", Epilogue::kName, gemm, name_kernel<Math>(choice));
  }
  if (choice.kind == KernelKind::kUnknownTile) return Status::kUnknownTile;
  if (choice.kind == KernelKind::kNone) return Status::kNoKernel;
  Status status = Status::kNoKernel;
  visit_choice<Math>(choice, [&](auto tile, auto alignment) {
    status =
        launch_gemm_sm80<decltype(tile), Math, Epilogue, alignment.value>(gemm, epilogue, launch);
  });
  return status;
}

#define CUTLASS_FUSED_INSTANTIATE_GEMM(Arch, Math, Epilogue)                           \
  template size_t workspace_size<Arch, Math, Epilogue>(GemmArgs const&, Choice const&, \
                                                       Device const&);                 \
  template Status run_gemm<Arch, Math, Epilogue>(GemmArgs const&, Choice const&,       \
                                                 Epilogue::Args const&, Launch const&)

}  // namespace cutlass_fused
