// The host's half of an open kernel for SM90: registers what makes its parameter and launches it.
// Included by generated files only. The kernel itself comes with the call.
#pragma once

#include "cutlass_fused/epilogue/open/choose_sm90.hpp"
#include "cutlass_fused/gemm/sm90/launch.hpp"

namespace cutlass_fused {

template <class Math, int kIndex>
bool register_open_sm90(char const* name) {
  using Parts = OpenSm90<Math, kIndex>;
  using Gemm = typename Parts::Gemm;
  static OpenKernel const kernel{name, Gemm::kSharedMemory, int(sizeof(typename Gemm::Params)),
                                 Parts::kReadsSource};
  return register_kernel(
      {ArchId::kSm90, Math::kId, {}, kIndex, EpilogueId{Open::kName}},
      {find_no_workspace, launch_gemm_sm90<typename Parts::Tile, Math, typename Parts::Epilogue>,
       &kernel});
}

#define CUTLASS_FUSED_REGISTER_OPEN_SM90(name, Math, kIndex) \
  CUTLASS_FUSED_REGISTER(register_open_sm90<Math, kIndex>(#name))

}  // namespace cutlass_fused
