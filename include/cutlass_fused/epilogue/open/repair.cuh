// The repair of split rows behind an open product, which writes the program's outputs anew: both
// halves, that of the kernels and that of the host. Included by generated files only.
//
// On CUDA cores alone: these are few outputs, of rows that lost something when they were split.
#pragma once

#include "cutlass_fused/epilogue/open/open.hpp"
#include "cutlass_fused/gemm/fp16x3/repair_rows.cuh"
#include "cutlass_fused/gemm/registry.hpp"

namespace cutlass_fused {

#define CUTLASS_FUSED_OPEN_KERNEL_REPAIR(name, kOnlySplit)                              \
  extern "C" __global__ void __launch_bounds__(SimtBlock::kThreads, kRepairBlocksPerSm) \
      name(__grid_constant__ RepairRowsParams<Open> const params) {                     \
    repair_rows_of_block<Open, kOnlySplit>(params);                                     \
  }

inline Status run_open_repair(GemmArgs const& gemm, void const* args, SplitMatrix const& x,
                              SplitMatrix const& weight, Device const& device,
                              cudaStream_t stream) {
  auto const& open = *static_cast<Open::Args const*>(args);
  return configure_repair_rows(gemm, device, stream)(
      open.repair_entry, make_repair_params<Open>(gemm, open, x, weight));
}

inline bool register_open_repair(char const* name, char const* of_split) {
  constexpr int kParamBytes = sizeof(RepairRowsParams<Open>);
  static OpenKernel const kernels[] = {{name, 0, kParamBytes, false},
                                       {of_split, 0, kParamBytes, false}};
  return register_epilogue(EpilogueId{Open::kName},
                           {nullptr, nullptr, run_open_repair, {&kernels[0], &kernels[1]}});
}

#define CUTLASS_FUSED_REGISTER_OPEN_REPAIR(name, of_split) \
  CUTLASS_FUSED_REGISTER(register_open_repair(#name, #of_split))

}  // namespace cutlass_fused
