// run_gemm_statistics_sm80: included by generated files only, each of which instantiates some Math
// rows.
#pragma once

#include "cutlass_fused/plan/choice_statistics_sm80.hpp"
#include "cutlass_fused/gemm/sm80/run.hpp"
#include "cutlass_fused/gemm/sm80/statistics_epilogue.hpp"
#include "cutlass_fused/gemm/batch_norm.hpp"

namespace cutlass_fused {

template <class Math>
Status run_gemm_statistics_sm80(GemmArgs const& gemm, int tile,
                                typename EpilogueOfZ<Math>::Args const& epilogue,
                                PartPointers const& parts, Launch const& launch) {
  using Epilogue = StatisticsSm80<EpilogueOfZ<Math>>;
  using Tiles = typename TilesSm80For<Math>::type;
  constexpr int kAlignmentBytes = 16;
  if (logs_choices()) {
    log_choice<Math>("sm80", Epilogue::kName, gemm, Tiles::kShapes[tile].name() + ".statistics");
  }
  Status status = Status::kUnknownTile;
  visit_tile(Tiles{}, tile, [&](auto chosen) {
    using Tile = decltype(chosen);
    if constexpr (can_find_statistics(Tile::kSchedule, Tile::kM)) {
      status =
          launch_gemm_sm80<Tile, Math, Epilogue, kAlignmentBytes>(gemm, {epilogue, parts}, launch);
    }
  });
  return status;
}

#define CUTLASS_FUSED_INSTANTIATE_GEMM_STATISTICS_SM80(Math) \
  template Status run_gemm_statistics_sm80<Math>(            \
      GemmArgs const&, int, EpilogueOfZ<Math>::Args const&, PartPointers const&, Launch const&)

}  // namespace cutlass_fused
