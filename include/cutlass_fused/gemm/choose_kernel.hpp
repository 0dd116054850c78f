// Which kernel serves a call: one with the forced tile, else with the tile that the product was
// tuned to, else with the heuristic's.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cutlass_fused/gemm/choice_sm90.hpp"
#include "cutlass_fused/gemm/tuned_tiles.hpp"

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
    Problem const problem{gemm.m, gemm.n, gemm.k, size_of(Math::kIn), Math::kEngine};
    choice.raster = estimate_tile(tile, problem, device).raster;
  }
  return true;
}

template <class Math>
bool use_tuned_sm80(ForcedTile const& tuned, Device const& device, Choice& choice) {
  if (choice.kind != KernelKind::kAligned) return false;
  int const tile = find_in_table<typename TilesSm80For<Math>::type>(tuned.sm80);
  if (tile < 0 || tuned.sm80->shared_memory() > device.shared_memory) return false;
  choice.tile = tile;
  return true;
}

// A tuned tile that cannot serve, as one of another build of the library, is ignored.
template <class Math, bool kSm90>
Kernel choose_kernel(GemmArgs const& gemm, Device const& device) {
  ForcedTile const* const tuned = find_tuned_tile<Math>(gemm, device);
  Kernel kernel{true, choose_sm90_if_compiled<Math, kSm90>(gemm, device)};
  if (tuned != nullptr && use_tuned_sm90<Math>(*tuned, gemm, device, kernel.choice)) {
    return kernel;
  }
  if (kernel.choice.kind != KernelKind::kNone && (tuned == nullptr || tuned->sm80 == nullptr)) {
    return kernel;
  }
  Kernel sm80{false, choose_kernel_sm80<Math>(gemm, device)};
  if (tuned != nullptr && use_tuned_sm80<Math>(*tuned, device, sm80.choice)) return sm80;
  return kernel.choice.kind != KernelKind::kNone ? kernel : sm80;
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

// The tiles that can serve instead of the kernel that was chosen, and its own; those of SM90
// kernels with each of a few rasters. Empty where there is nothing to choose.
template <class Math>
std::vector<std::string> list_candidates(Kernel const& kernel, GemmArgs const& gemm,
                                         Device const& device) {
  std::vector<std::string> names;
  if (kernel.choice.kind != KernelKind::kAligned || forced_tile.load() != nullptr) return names;
  for (TileShape const& tile : TilesSm80For<Math>::type::kShapes) {
    if (tile.shared_memory() <= device.shared_memory) names.push_back(tile.name());
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
