// Which kernel serves a call: the forced one, else the one that the product was tuned to, else the
// heuristic's.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cutlass_fused/plan/choice_sm90.hpp"
#include "cutlass_fused/plan/tuned_tiles.hpp"

namespace cutlass_fused {

struct Kernel {
  bool sm90;  // of SM90 kernels, else of SM80's
  Choice choice;
};

// kSm90: whether SM90 kernels are compiled.
template <class Math, bool kSm90>
constexpr bool has_sm90_kernels = kSm90 && TilesSm90For<Math>::type::kSize > 0;

template <class Math, bool kSm90>
Choice choose_sm90_if_compiled(GemmArgs const& gemm, Device const& device) {
  if constexpr (has_sm90_kernels<Math, kSm90>) return choose_kernel_sm90<Math>(gemm, device);
  return {KernelKind::kNone, -1, {}};
}

// Whether cuBLAS can give the product in fp32. Of fp32 tensors it could not say how precise it is.
template <class Math>
bool cublas_serves(GemmArgs const& gemm) {
  return size_of(Math::kIn) == 2 && gemm.k > 0;
}

// Whether two tiles have one name.
inline bool is_same(TileShape const& a, TileShape const& b) {
  return a.m == b.m && a.n == b.n && a.bytes_k == b.bytes_k && a.schedule == b.schedule;
}
inline bool is_same(TileShapeSm90 const& a, TileShapeSm90 const& b) {
  return a.m == b.m && a.n == b.n && a.bytes_k == b.bytes_k && a.cluster_m == b.cluster_m &&
         a.cluster_n == b.cluster_n && a.schedule == b.schedule && a.operands == b.operands &&
         a.output == b.output;
}

// The index of the tile in the table, which may not be the one that its name was found in; -1 if it
// is not there, or null.
template <class Tiles, class Shape>
int find_in_table(Shape const* tile) {
  for (int i = 0; tile != nullptr && i < Tiles::kSize; ++i) {
    if (is_same(Tiles::kShapes[i], *tile)) return i;
  }
  return -1;
}

// Replaces the tile of the choice by the tuned one. False: that cannot serve.
template <class Math>
bool use_tuned_sm90(ForcedTile const& tuned, GemmArgs const& gemm, Device const& device,
                    Choice& choice) {
  if (choice.kind != KernelKind::kAligned) return false;
  int const tile = find_in_table<typename TilesSm90For<Math>::type>(tuned.sm90);
  if (tile < 0 || !can_serve(*tuned.sm90, gemm, Math::kOut)) return false;
  if (tuned.has_raster && !suits(tuned.raster, *tuned.sm90)) return false;
  choice.tile = tile;
  choice.raster = tuned.raster;
  if (!tuned.has_raster) {
    choice.raster = estimate_tile<Math>(tile, make_problem<Math>(gemm), device).raster;
  }
  return true;
}

template <class Math>
bool use_tuned_sm80(ForcedTile const& tuned, Device const& device, Choice& choice) {
  if (choice.kind != KernelKind::kAligned) return false;
  using Tiles = typename TilesSm80For<Math>::type;
  int const tile = find_in_table<Tiles>(tuned.sm80);
  if (tile < 0 || Tiles::kShapes[tile].shared_memory() > device.shared_memory) return false;
  choice.tile = tile;
  return true;
}

// By the estimates, unless a tile is forced.
template <class Math, bool kSm90>
Kernel estimate_kernel(GemmArgs const& gemm, Device const& device) {
  Kernel const kernel{true, choose_sm90_if_compiled<Math, kSm90>(gemm, device)};
  if (kernel.choice.kind != KernelKind::kNone) return kernel;
  return {false, choose_kernel_sm80<Math>(gemm, device)};
}

// A tuned tile that cannot serve, as one of another build of the library, is ignored. `copied`: the
// operands are to be copied for SM90 kernels, and lie otherwise for those of SM80.
template <class Math, bool kSm90>
Kernel choose_kernel(GemmArgs const& gemm, Device const& device, bool copied = false) {
  constexpr Kernel kCublas{false, {KernelKind::kCublas, -1, {}}};
  constexpr Kernel kUnknown{false, {KernelKind::kUnknownTile, -1, {}}};
  ForcedTile const* const forced = forced_tile.load(std::memory_order_acquire);
  if (forced != nullptr && forced->cublas) return cublas_serves<Math>(gemm) ? kCublas : kUnknown;
  ForcedTile const* const tuned = find_tuned_tile<Math>(gemm, device);
  if (tuned != nullptr && tuned->cublas && cublas_serves<Math>(gemm)) return kCublas;
  Kernel kernel = estimate_kernel<Math, kSm90>(gemm, device);
  if (tuned == nullptr) return kernel;
  if (kernel.sm90 && use_tuned_sm90<Math>(*tuned, gemm, device, kernel.choice)) return kernel;
  if (tuned->sm80 == nullptr || copied) return kernel;
  Kernel sm80{false, choose_kernel_sm80<Math>(gemm, device)};
  return use_tuned_sm80<Math>(*tuned, device, sm80.choice) ? sm80 : kernel;
}

// As force_tile takes it. The kernel must be one that has a tile (kAligned).
template <class Math>
std::string name_tile(Kernel const& kernel) {
  if (!kernel.sm90) return TilesSm80For<Math>::type::kShapes[kernel.choice.tile].name();
  if constexpr (TilesSm90For<Math>::type::kSize > 0) {
    TileShapeSm90 const& tile = TilesSm90For<Math>::type::kShapes[kernel.choice.tile];
    bool const single = tile.schedule == ScheduleSm90::kSingle;
    return tile.name() + (single ? "" : "@" + kernel.choice.raster.name());
  }
  return "";
}

// What is worth a try.
constexpr std::array<char const*, 4> kOrderNames{"m1", "m2", "n2", "n4"};
constexpr std::array<char const*, 4> kSliceNames{"k1", "k2", "k3", "k4"};

// What can serve instead of the kernel that was chosen, and it itself; tiles of SM90 kernels with
// each of a few rasters. Empty where there is nothing to choose. `copied` as above.
template <class Math>
std::vector<std::string> list_candidates(Kernel const& kernel, GemmArgs const& gemm,
                                         Device const& device, bool copied = false) {
  std::vector<std::string> names;
  if (kernel.choice.kind != KernelKind::kAligned || forced_tile.load() != nullptr) return names;
  if (cublas_serves<Math>(gemm)) names.push_back(kCublasName);
  // Split rows are aligned whatever they were made of.
  bool const aligned =
      splits_rows(Math::kEngine) || (!copied && operand_alignment(gemm, size_of(Math::kIn)) == 16);
  for (TileShape const& tile : TilesSm80For<Math>::type::kShapes) {
    if (aligned && tile.shared_memory() <= device.shared_memory) names.push_back(tile.name());
  }
  // The choice was an SM80 kernel: TMA cannot read the operands.
  if (!kernel.sm90) return names;
  for (auto const& tile : TilesSm90For<Math>::type::kShapes) {
    if (!can_serve(tile, gemm, Math::kOut)) continue;
    if (tile.schedule == ScheduleSm90::kSingle) {
      names.push_back(tile.name());
      continue;
    }
    bool const split = is_split(tile.schedule);
    for (char const* raster : split ? kSliceNames : kOrderNames) {
      names.push_back(tile.name() + "@" + raster);
    }
  }
  return names;
}

}  // namespace cutlass_fused
