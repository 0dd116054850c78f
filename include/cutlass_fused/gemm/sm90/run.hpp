// run_gemm<Sm90, Math, Epilogue>: hand the tile that was chosen to the file that has its kernel.
// Included by generated files only.
#pragma once

#include <type_traits>

#include "cutlass_fused/epilogue/unscaled.hpp"
#include "cutlass_fused/gemm/run.hpp"
#include "cutlass_fused/plan/log_choice.hpp"
#include "cutlass_fused/gemm/sm90/tiles.hpp"

namespace cutlass_fused {

// Launches the tile at choice.tile, which has this schedule. Compiled apart from run_gemm: one file
// holds a schedule's tiles for several Math rows and epilogues, whose common templates the
// compiler's front end, which takes longer than its optimizer, then reads once.
template <ScheduleSm90 kSchedule, class Math, class Epilogue>
Status run_tile_sm90(GemmArgs const& gemm, Choice const& choice,
                     typename Epilogue::Args const& epilogue, Launch const& launch);

template <class Arch, class Math, class Epilogue>
size_t workspace_size(GemmArgs const&, Choice const&, Device const&) {
  return 0;
}

template <class Arch, class Math, class Epilogue>
Status run_gemm(GemmArgs const& gemm, Choice const& choice, typename Epilogue::Args const& epilogue,
                Launch const& launch) {
  using Tiles = typename TilesSm90For<Math>::type;
  bool const chosen =
      choice.kind == KernelKind::kAligned && choice.tile >= 0 && choice.tile < Tiles::kSize;
  if (logs_choices()) {
    log_choice<Math>(
        "sm90", Epilogue::kName, gemm,
        chosen ? Tiles::kShapes[choice.tile].name() + "@" + choice.raster.name() : "none");
  }
  if (!chosen) return Status::kUnknownTile;
  auto const run = [&](auto schedule) {
    return run_tile_sm90<decltype(schedule)::value, Math, Epilogue>(gemm, choice, epilogue, launch);
  };
  using S = ScheduleSm90;
  switch (Tiles::kShapes[choice.tile].schedule) {
    case S::kCooperative:
      return run(std::integral_constant<S, S::kCooperative>{});
    case S::kPingpong:
      return run(std::integral_constant<S, S::kPingpong>{});
    case S::kSingle:
      return run(std::integral_constant<S, S::kSingle>{});
    case S::kSplit:
      return run(std::integral_constant<S, S::kSplit>{});
    case S::kSplitPair:
      return run(std::integral_constant<S, S::kSplitPair>{});
  }
  return Status::kUnknownTile;
}

#define CUTLASS_FUSED_INSTANTIATE_GEMM(Arch, Math, Epilogue)                           \
  template size_t workspace_size<Arch, Math, Epilogue>(GemmArgs const&, Choice const&, \
                                                       Device const&);                 \
  template Status run_gemm<Arch, Math, Epilogue>(GemmArgs const&, Choice const&,       \
                                                 Epilogue::Args const&, Launch const&)

}  // namespace cutlass_fused
