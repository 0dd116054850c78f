// Launches an SM90 kernel, and registers it. Included by generated files only, each of which
// registers some combinations.
#pragma once

#include <array>
#include <atomic>

#include "cutlass_fused/common/memo.hpp"
#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/sm90/kernel.hpp"

namespace cutlass_fused {

// The cluster last: kernels of one block to a cluster are launched without.
using LaunchAttributes = std::array<cudaLaunchAttribute, 2>;

template <class Gemm>
cudaLaunchConfig_t configure_launch(Raster const& raster, LaunchAttributes& attributes) {
  dim3 const blocks = Gemm::cluster(raster);
  // Starts while the kernel before it in the stream ends: CUTLASS_ENABLE_GDC_FOR_SM90.
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {blocks.x, blocks.y, blocks.z};
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(Gemm::kThreads);
  config.dynamicSmemBytes = Gemm::kSharedMemory;
  config.attrs = attributes.data();
  config.numAttrs = blocks.x * blocks.y > 1 ? 2 : 1;
  return config;
}

// As CUDA's runtime launches it.
template <class Tile, class Math, class Epilogue>
void const* find_entry(ProductLaunch const& call) {
  if constexpr (OpenCall<Epilogue>::kIsOpen) {
    return OpenCall<Epilogue>::entry(call);
  } else {
    return reinterpret_cast<void const*>(gemm_sm90<Tile, Math, Epilogue>);
  }
}

// Once per kernel, size of its clusters and GPU: opt in to its shared memory, and count the
// clusters that the GPU holds at once. Two threads that come first together do the same work twice,
// which is harmless. Returns -1 on a CUDA error. The kernels of an open epilogue, which differ in
// their programs, are one kernel here: whoever loads one has opted in.
template <class Tile, class Math, class Epilogue>
int resident_clusters(void const* kernel, Raster const& raster, Device const& device) {
  using Gemm = GemmSm90<Tile, Math, Epilogue>;
  constexpr int kMaxDevices = 64;
  static std::atomic<int> cache[kMaxDevices][kMostSlices + 1];
  bool const cached = device.index < kMaxDevices;
  std::atomic<int>& slot =
      cache[device.index % kMaxDevices][slices_k(Tile::kSchedule) ? raster.count : 0];
  int clusters = cached ? slot.load(std::memory_order_relaxed) : 0;
  if (clusters > 0) return clusters;
  LaunchAttributes attributes{};
  cudaLaunchConfig_t config = configure_launch<Gemm>(raster, attributes);
  config.numAttrs = 2;  // counting clusters asks for their size, also where it is one
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           Gemm::kSharedMemory) != cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
    return -1;
  }
  if (cached) slot.store(clusters, std::memory_order_relaxed);
  return clusters;
}

// Launches no more of the clusters that the GPU holds than take the same number of waves. Of 1024
// clusters 64 take 16 waves, as 66 do, whose last would be half empty. On an H200 16384 x 4096 x
// 4096 then took 0.993 times the bare product instead of 1.006. Clusters of nothing, which CUTLASS
// adds to make whole panels, count too: 58 would take a wave more for 176 than for 172.
template <class Tile, class Params>
void spread_clusters(Params& params) {
  if constexpr (is_persistent(Tile::kSchedule)) {
    int64_t const clusters =
        int64_t(params.scheduler.blocks_per_problem_) / (Tile::kClusterM * Tile::kClusterN);
    int64_t const resident = params.hw_info.max_active_clusters;
    params.hw_info.max_active_clusters = int(ceil_div(clusters, ceil_div(clusters, resident)));
  }
}

template <class Tile, class Math, class Epilogue>
Status launch_gemm_sm90(ProductLaunch const& call) {
  GemmArgs const& gemm = call.gemm;
  Raster const& raster = call.raster;
  Launch const& launch = call.launch;
  using Gemm = GemmSm90<Tile, Math, Epilogue>;
  using Params = typename Gemm::Params;
  void const* const kernel = find_entry<Tile, Math, Epilogue>(call);
  Source const source = OpenCall<Epilogue>::source(call);
  static thread_local Memo<Params> memo;
  Status status = Status::kCudaError;
  auto const make = [&](Params& params) {
    if (!bind_context(launch.device.index)) return false;
    int const resident = resident_clusters<Tile, Math, Epilogue>(kernel, raster, launch.device);
    if (resident <= 0) {
      if (resident == 0) status = Status::kNoKernel;
      return false;
    }
    params = Gemm::make_params(gemm, raster, launch.device, resident, source);
    spread_clusters<Tile>(params);
    status = Gemm::has_descriptors(params) ? Status::kSuccess : Status::kNoDescriptor;
    return status == Status::kSuccess;
  };
  Params const* const kept = memo.find(make_launch_key(gemm, raster, launch.device, source), make);
  if (kept == nullptr) return status;
  Params params = *kept;
  Gemm::set_epilogue(params, gemm, UnpackArgs<Epilogue>::unpack(call));

  LaunchAttributes attributes{};
  cudaLaunchConfig_t config = configure_launch<Gemm>(raster, attributes);
  config.gridDim = Gemm::grid(params, raster);
  config.stream = launch.stream;
  void* arguments[] = {&params};
  cudaError_t const error = cudaLaunchKernelExC(&config, kernel, arguments);
  if (error != cudaErrorInvalidClusterSize) {
    return error == cudaSuccess ? Status::kSuccess : Status::kCudaError;
  }
  // The part of the GPU that serves this stream is smaller than the one that was asked about.
  cudaGetLastError();
  return Status::kNoKernel;
}

inline size_t find_no_workspace(GemmArgs const&, Device const&) { return 0; }

template <class Tile, class Math, class Epilogue>
void register_tile_sm90(EpilogueId name, int tile) {
  register_kernel({ArchId::kSm90, Math::kId, {Major::kK, Tile::kWeightMajor}, tile, name},
                  {find_no_workspace, launch_gemm_sm90<Tile, Math, Epilogue>});
}

// The tiles of some schedule: one file holds these for several Math rows and epilogues, whose
// common templates the compiler's front end, which takes longer than its optimizer, then reads
// once.
template <ScheduleSm90 kSchedule, class Math, class Epilogue, class... Rows>
bool register_tiles_sm90(TileListSm90<Rows...>) {
  int index = 0;
  auto const add = [&](auto tile) {
    using Tile = decltype(tile);
    if constexpr (Tile::kSchedule == kSchedule) {
      register_tile_sm90<Tile, Math, Epilogue>(EpilogueId{Epilogue::kName}, index);
    }
    ++index;
  };
  (add(typename Rows::type{}), ...);
  return true;
}

// All tiles that multiply a weight whose parts lie along N.
template <class Math, class Epilogue, class... Rows>
bool register_along_n_sm90(TileListSm90<Rows...>) {
  int index = 0;
  auto const add = [&](auto tile) {
    using Tile = decltype(tile);
    if constexpr (Tile::kOperands == Operands::kSwapped) {
      register_tile_sm90<AlongN<Tile>, Math, Epilogue>(EpilogueId{Epilogue::kName}, index);
    }
    ++index;
  };
  (add(typename Rows::type{}), ...);
  return true;
}

#define CUTLASS_FUSED_REGISTER_ALONG_N_SM90(Math, Epilogue) \
  CUTLASS_FUSED_REGISTER(register_along_n_sm90<Math, Epilogue>(TilesSm90For<Math>::type{}))

#define CUTLASS_FUSED_REGISTER_TILES_SM90(SCHEDULE, Math, Epilogue) \
  CUTLASS_FUSED_REGISTER(                                           \
      register_tiles_sm90<ScheduleSm90::SCHEDULE, Math, Epilogue>(TilesSm90For<Math>::type{}))

}  // namespace cutlass_fused
