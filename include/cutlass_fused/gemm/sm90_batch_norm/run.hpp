// run_gemm_batch_norm and run_gemm_statistics: included by generated files only, each of which
// instantiates some Math rows.
#pragma once

#include "cutlass_fused/gemm/sm90_batch_norm/batch_norm_epilogue.hpp"
#include "cutlass_fused/plan/choice_batch_norm_sm90.hpp"
#include "cutlass_fused/gemm/sm90/launch.hpp"
#include "cutlass_fused/plan/log_choice.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/statistics_epilogue.hpp"

namespace cutlass_fused {

// Blocks wait for others of this launch, which a GPU runs in the order of their numbers: at any
// time it has whole groups, which end, and of each launch the beginning of one more, which is a
// single cluster (kMostClusters). As long as more clusters fit on the GPU than launches can run at
// once (CUDA has 32 queues at most), there is room for the rest of a group. A cooperative launch
// would say so to the driver, but Nsight Compute cannot repeat one of clusters.
//
// kNoKernel: the GPU is smaller, or no cluster fits in the part of it that serves this stream.
template <class Math>
Status run_gemm_batch_norm(GemmArgs const& gemm, BatchNormOfProduct const& batch_norm, void* parts,
                           Launch const& launch) {
  using Epilogue = InRegisters<BatchNormInGroup>;
  using Gemm = GemmSm90<GroupTile, Math, Epilogue>;
  // The tiles of all rows of a feature follow each other.
  Raster const raster{Raster::kAlongN, 1};
  if (logs_choices()) log_choice<Math>("sm90", Epilogue::kName, gemm, "group");
  static thread_local Memo<typename Gemm::Params> memo;
  Status status = Status::kCudaError;
  auto const make = [&](typename Gemm::Params& params) {
    if (!bind_context(launch.device.index)) return false;
    int const resident = resident_clusters<GroupTile, Math, Epilogue>(raster, launch.device);
    if (resident < 0) return false;
    if (resident <= kMostLaunchesAtOnce) {
      status = Status::kNoKernel;
      return false;
    }
    int const group = int(clusters_of_group(gemm.m));
    params = Gemm::make_params(gemm, raster, launch.device, resident / group * group);
    status = Gemm::has_descriptors(params) ? Status::kSuccess : Status::kNoDescriptor;
    return status == Status::kSuccess;
  };
  auto const* const kept = memo.find(make_launch_key(gemm, raster, launch.device), make);
  if (kept == nullptr) return status;
  typename Gemm::Params params = *kept;
  Gemm::set_epilogue(
      params, gemm,
      {{Evaluator<ScaleBias::Tree>::pack(batch_norm.product.operands()), batch_norm.gamma,
        batch_norm.beta, batch_norm.eps, batch_norm.running, batch_norm.mean, batch_norm.rstd,
        static_cast<uint64_t*>(parts), 1.0 / double(gemm.m)}});

  LaunchAttributes attributes{};
  cudaLaunchConfig_t config = configure_launch<Gemm>(raster, attributes);
  config.gridDim = Gemm::grid(params, raster);
  config.stream = launch.stream;
  cudaError_t const error =
      cudaLaunchKernelEx(&config, gemm_sm90<GroupTile, Math, Epilogue>, params);
  if (error != cudaErrorInvalidClusterSize) {
    return error == cudaSuccess ? Status::kSuccess : Status::kCudaError;
  }
  cudaGetLastError();
  return Status::kNoKernel;
}

template <class Math>
Status run_gemm_statistics(GemmArgs const& gemm, typename EpilogueOfZ<Math>::Args const& epilogue,
                           PartPointers const& parts, unsigned* strips, Launch const& launch) {
  using Tile = StatisticsTile<Math>;
  using Epilogue = Statistics<EpilogueOfZ<Math>>;
  constexpr int kTile = find_tile<typename TilesSm90For<Math>::type, Tile>();
  Raster const raster =
      strips == nullptr ? estimate_tile<Math>(kTile, make_problem<Math>(gemm), launch.device).raster
                        : Raster{Raster::kAlongN, kStripsOfPanel};
  static_assert(Tile::kM * Tile::kClusterM == kColumnsOfStrip);
  if (logs_choices()) {
    log_choice<Math>("sm90", Epilogue::kName, gemm, strips == nullptr ? "statistics" : "strips");
  }
  return launch_gemm_sm90<Tile, Math, Epilogue>(gemm, raster, {epilogue, parts, {strips}}, launch);
}

#define CUTLASS_FUSED_INSTANTIATE_GEMM_STATISTICS(Math)                                      \
  template Status run_gemm_statistics<Math>(GemmArgs const&, EpilogueOfZ<Math>::Args const&, \
                                            PartPointers const&, unsigned*, Launch const&)
#define CUTLASS_FUSED_INSTANTIATE_GEMM_BATCH_NORM(Math)                                        \
  template Status run_gemm_batch_norm<Math>(GemmArgs const&, BatchNormOfProduct const&, void*, \
                                            Launch const&)

}  // namespace cutlass_fused
