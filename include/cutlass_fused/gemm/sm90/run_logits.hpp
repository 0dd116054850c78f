// run_gemm_logits: included by generated files only.
#pragma once

#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "cutlass_fused/gemm/run.hpp"
#include "cutlass_fused/gemm/sm90/launch.hpp"
#include "cutlass_fused/plan/log_choice.hpp"
#include "cutlass_fused/plan/logits_sm90.hpp"

namespace cutlass_fused {

template <class Math, class Epilogue>
Status run_gemm_logits(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                       Launch const& launch) {
  constexpr int kTile = find_tile<typename TilesSm90For<Math>::type, LogitsTile>();
  Raster const raster = estimate_tile<Math>(kTile, make_problem<Math>(gemm), launch.device).raster;
  if (logs_choices()) log_choice<Math>("sm90", Epilogue::kName, gemm, "logits");
  return launch_gemm_sm90<LogitsTile, WithLogits<Math>, Epilogue>(gemm, raster, epilogue, launch);
}

#define CUTLASS_FUSED_INSTANTIATE_GEMM_LOGITS(Math, Epilogue)                             \
  template Status run_gemm_logits<Math, Epilogue>(GemmArgs const&, Epilogue::Args const&, \
                                                  Launch const&)

}  // namespace cutlass_fused
