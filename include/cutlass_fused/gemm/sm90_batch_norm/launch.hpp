// Registers SM90 products that find the statistics of their result, or normalize by them too.
// Included by generated files only.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/sm90/launch.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/batch_norm_epilogue.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/statistics_epilogue.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/tiles.hpp"

namespace cutlass_fused {

template <class Epilogue>
struct UnpackArgs<Statistics<Epilogue>> {
  static typename Statistics<Epilogue>::Args unpack(ProductLaunch const& call) {
    return {UnpackArgs<Epilogue>::unpack(call), call.parts, {call.strips}};
  }
};

// z, less the shifts of its parts where it is of 16 bits, and its parts. `strips` of the launch:
// null, or for every strip of z the number of its tiles that are in memory, to be counted up from
// zero. Then strips are completed one after another, if with several at a time, and the kernel
// behind this one runs at the same time as soon as it has room.
template <class Math>
bool register_statistics_sm90() {
  using Tile = StatisticsTile<Math>;
  static_assert(Tile::kM * Tile::kClusterM == kColumnsOfStrip);
  constexpr int kTile = find_tile<typename TilesSm90For<Math>::type, Tile>();
  register_tile_sm90<Tile, Math, Statistics<EpilogueOfZ<Math>>>(names::kStatistics, kTile);
  return true;
}

// y in one kernel: the epilogue's operands are a BatchNormOfProduct, and parts what run_clear_parts
// left.
//
// Blocks wait for others of this launch, which a GPU runs in the order of their numbers: at any
// time it has whole groups, which end, and of each launch the beginning of one more, which is a
// single cluster (kMostClusters). As long as more clusters fit on the GPU than launches can run at
// once (CUDA has 32 queues at most), there is room for the rest of a group. A cooperative launch
// would say so to the driver, but Nsight Compute cannot repeat one of clusters.
//
// kNoKernel: the GPU is smaller, or no cluster fits in the part of it that serves this stream.
template <class Math>
Status launch_batch_norm_sm90(ProductLaunch const& call) {
  using Epilogue = InRegisters<BatchNormInGroup>;
  using Gemm = GemmSm90<GroupTile, Math, Epilogue>;
  GemmArgs const& gemm = call.gemm;
  Raster const& raster = call.raster;  // the tiles of all rows of a feature follow each other
  Launch const& launch = call.launch;
  auto const& batch_norm = *static_cast<BatchNormOfProduct const*>(call.epilogue);
  static thread_local Memo<typename Gemm::Params> memo;
  Status status = Status::kCudaError;
  auto const make = [&](typename Gemm::Params& params) {
    if (!bind_context(launch.device.index)) return false;
    int const resident = resident_clusters<GroupTile, Math, Epilogue>(
        find_entry<GroupTile, Math, Epilogue>(call), raster, launch.device);
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
  Gemm::set_epilogue(params, gemm,
                     {{Evaluator<ScaleBias::Tree>::pack(batch_norm.product.operands()),
                       batch_norm.gamma, batch_norm.beta, batch_norm.eps, batch_norm.running,
                       batch_norm.mean, batch_norm.rstd, call.parts.parts, 1.0 / double(gemm.m)}});

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
bool register_batch_norm_sm90() {
  return register_kernel({ArchId::kSm90, Math::kId, {}, kOwnTile, names::kBatchNormInGroup},
                         {find_no_workspace, launch_batch_norm_sm90<Math>});
}

#define CUTLASS_FUSED_REGISTER_STATISTICS_SM90(Math) \
  CUTLASS_FUSED_REGISTER(register_statistics_sm90<Math>())
#define CUTLASS_FUSED_REGISTER_BATCH_NORM_SM90(Math) \
  CUTLASS_FUSED_REGISTER(register_batch_norm_sm90<Math>())

}  // namespace cutlass_fused
