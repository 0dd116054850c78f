// Open kernels of tf32x3: both halves, that of the kernels and that of the host. Included by
// generated files only.
//
// Sums are exchanged before they are stored, as the operands of a program would spill beside the
// numbers of a block's next job, so that each block has one job.
#pragma once

#include <tuple>

#include "cutlass_fused/epilogue/open/open.hpp"
#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/tf32x3/kernel.cuh"
#include "cutlass_fused/gemm/tf32x3/launch_jobs.cuh"
#include "cutlass_fused/gemm/tf32x3/run.hpp"

namespace cutlass_fused {

template <class List, int kTile>
struct TileAtTf32x3;
template <class... Rows, int kTile>
struct TileAtTf32x3<TileListTf32x3<Rows...>, kTile> {
  using type = typename std::tuple_element_t<kTile, std::tuple<Rows...>>::type;
};
template <int kTile>
using OpenTileTf32x3 = typename TileAtTf32x3<TilesTf32x3, kTile>::type;

template <int kTile, bool kInTf32>
using OpenKernelTf32x3 =
    tf32x3::Kernel<OpenTileTf32x3<kTile>, Major::kK, Major::kK, true, kInTf32, Open>;

#define CUTLASS_FUSED_OPEN_KERNEL_TF32X3(name, kTile, kInTf32)                      \
  extern "C" __global__ void __launch_bounds__(OpenTileTf32x3<kTile>::kThreads,     \
                                               OpenTileTf32x3<kTile>::kBlocksPerSm) \
      name(__grid_constant__ Tf32x3Params<Open> const params) {                     \
    extern __shared__ __align__(128) float shared[];                                \
    OpenKernelTf32x3<kTile, kInTf32>(params, shared).run();                         \
  }

// The kernel comes with the call, and is that of its tile and precision.
inline Status run_open_tf32x3(FloatProduct const& product, int tile, SharesTf32x3 const& shares,
                              void*, void const* args, bool, Device const& device,
                              cudaStream_t stream) {
  auto const& open = *static_cast<Open::Args const*>(args);
  auto params = make_params_tf32x3<Open>(product, tile, shares, nullptr, args, /*is_bare=*/false);
  return call_with_tile(TilesTf32x3{}, tile, [&](auto row) {
    using Tile = typename decltype(row)::type;
    if constexpr (arch_of<Tile> == ArchId::kSm80) {
      return launch_blocks<Tile>(params, device, stream,
                                 [&](cudaLaunchConfig_t const& config, Tf32x3Params<Open>& given) {
                                   void* arguments[] = {&given};
                                   return cudaLaunchKernelExC(&config, open.entry, arguments);
                                 });
    }
    return Status::kUnknownTile;
  });
}

template <int kTile, bool kInTf32>
bool register_open_kernel_tf32x3(char const* name) {
  static OpenKernel const kernel{name, OpenTileTf32x3<kTile>::kSharedBytes,
                                 int(sizeof(Tf32x3Params<Open>)), /*reads_source=*/false};
  return register_open_tf32x3(kTile, kInTf32, &kernel);
}

#define CUTLASS_FUSED_REGISTER_OPEN_KERNEL_TF32X3(name, kTile, kInTf32) \
  CUTLASS_FUSED_REGISTER(register_open_kernel_tf32x3<kTile, kInTf32>(#name))

// What launches them all.
#define CUTLASS_FUSED_REGISTER_OPEN_TF32X3(Epilogue) \
  CUTLASS_FUSED_REGISTER(                            \
      register_tf32x3(ArchId::kSm80, EpilogueId{Epilogue::kName}, run_open_tf32x3))

}  // namespace cutlass_fused
