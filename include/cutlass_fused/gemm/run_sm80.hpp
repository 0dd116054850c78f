// run_gemm<Sm80, Math, Epilogue>: choose a kernel, lay out its workspace, launch it.
// Included by generated files only, each of which instantiates one combination.
#pragma once

#include <algorithm>
#include <atomic>

#include "cutlass_fused/gemm/gemm_sm80.hpp"
#include "cutlass_fused/gemm/log_choice.hpp"
#include "cutlass_fused/kernel/gemm_simt.cuh"

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
      visit(typename NarrowTilesSm80For<Math>::Narrow4{}, Align4{});
      break;
    case KernelKind::kNarrow2:
      if constexpr (size_of(Math::kIn) == 2) {
        visit(typename NarrowTilesSm80For<Math>::Narrow2{}, Align2{});
      }
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
    case KernelKind::kSimt:
      return "simt";
    default:
      return "none";
  }
}

inline size_t round_up_to_256(size_t bytes) { return (bytes + 255) / 256 * 256; }

// The flags of the repair stand first in the workspace, behind them stream-K's partial sums or the
// rounded copy of x.
template <class Math>
size_t repair_bytes(GemmArgs const& gemm) {
  if (!EngineSm80<Math::kEngine>::kRepair) return 0;
  return round_up_to_256(RepairFlags::bytes(gemm.m, gemm.n));
}

template <class Arch, class Math, class Epilogue>
size_t workspace_size(GemmArgs const& gemm, Choice const& choice, Device const& device) {
  size_t bytes = 0;
  visit_choice<Math>(choice, [&](auto tile, auto alignment) {
    using Tile = decltype(tile);
    using Gemm = GemmSm80<Tile, Math, Epilogue, alignment.value>;
    bytes = repair_bytes<Math>(gemm);
    if constexpr (Gemm::kRoundFirst) bytes += size_t(gemm.m) * gemm.k * sizeof(float);
    if constexpr (Gemm::kStreamK) {
      int const resident = resident_blocks<Tile, Math, Epilogue, alignment.value>(device);
      bytes += Gemm::params(gemm, {}, {}, device.sm_count, resident).get_workspace_size();
    }
  });
  return bytes;
}

// Rounds x into the workspace, and returns the product with the copy in its place.
template <class Math>
GemmArgs round_x_first(GemmArgs gemm, void* workspace, Launch const& launch) {
  auto* const rounded = static_cast<float*>(workspace);
  // One or two pieces of 16 bytes a thread, a row or more a block.
  dim3 const grid(unsigned(std::min<int64_t>(ceil_div(gemm.k, 2 * 4 * 256), 1024)),
                  unsigned(std::min<int64_t>(gemm.m, 65535)));
  round_rows_to_tf32<Math><<<grid, dim3(256), 0, launch.stream>>>(
      static_cast<float const*>(gemm.x), gemm.ldx, gemm.m, gemm.k, rounded);
  gemm.x = rounded;
  gemm.ldx = gemm.k;
  return gemm;
}

template <class Tile, class Math, class Epilogue, int kAlignmentBytes>
Status launch_gemm_sm80(GemmArgs gemm, typename Epilogue::Args const& epilogue,
                        RepairFlags const& repair, void* workspace, Launch const& launch) {
  using Gemm = GemmSm80<Tile, Math, Epilogue, kAlignmentBytes>;
  int const resident = resident_blocks<Tile, Math, Epilogue, kAlignmentBytes>(launch.device);
  if (resident == 0) return Status::kCudaError;
  if constexpr (Gemm::kRoundFirst) gemm = round_x_first<Math>(gemm, workspace, launch);

  typename Gemm::Params params =
      Gemm::params(gemm, epilogue, repair, launch.device.sm_count, resident);
  if constexpr (Gemm::kStreamK) {
    if (params.init_workspace(workspace, launch.stream) != cutlass::Status::kSuccess) {
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
  if (choice.kind == KernelKind::kSimt) {
    launch_gemm_simt<Math, Epilogue>(gemm, epilogue, nullptr, launch.device, launch.stream);
    return cudaPeekAtLastError() == cudaSuccess ? Status::kSuccess : Status::kCudaError;
  }

  constexpr bool kRepair = EngineSm80<Math::kEngine>::kRepair;
  auto* const workspace = static_cast<uint8_t*>(launch.workspace);
  RepairFlags repair;
  if constexpr (kRepair) {
    repair = {workspace, int(ceil_div(gemm.n, RepairFlags::kBlock))};
    if (cudaMemsetAsync(workspace, 0, RepairFlags::bytes(gemm.m, gemm.n), launch.stream) !=
        cudaSuccess) {
      return Status::kCudaError;
    }
  }
  Status status = Status::kNoKernel;
  visit_choice<Math>(choice, [&](auto tile, auto alignment) {
    status = launch_gemm_sm80<decltype(tile), Math, Epilogue, alignment.value>(
        gemm, epilogue, repair, workspace + repair_bytes<Math>(gemm), launch);
  });
  if constexpr (kRepair) {
    if (status == Status::kSuccess) {
      launch_gemm_simt<Math, Epilogue>(gemm, epilogue, repair.flags, launch.device, launch.stream);
      if (cudaPeekAtLastError() != cudaSuccess) status = Status::kCudaError;
    }
  }
  return status;
}

#define CUTLASS_FUSED_INSTANTIATE_GEMM(Arch, Math, Epilogue)                           \
  template size_t workspace_size<Arch, Math, Epilogue>(GemmArgs const&, Choice const&, \
                                                       Device const&);                 \
  template Status run_gemm<Arch, Math, Epilogue>(GemmArgs const&, Choice const&,       \
                                                 Epilogue::Args const&, Launch const&)

}  // namespace cutlass_fused
