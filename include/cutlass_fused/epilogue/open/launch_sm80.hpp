// The host's half of an open kernel for every GPU: registers what makes its parameter and launches
// it. Included by generated files only. The kernel itself comes with the call.
#pragma once

#include "cutlass_fused/epilogue/open/choose_sm80.hpp"
#include "cutlass_fused/gemm/sm80/launch.hpp"

namespace cutlass_fused {

template <class Math, int kIndex>
bool register_open_sm80(char const* name) {
  using Parts = OpenSm80<Math, kIndex>;
  using Gemm = typename Parts::Gemm;
  static OpenKernel const kernel{name, Gemm::kSharedMemory, int(sizeof(typename Gemm::Params)),
                                 /*reads_source=*/false};
  return register_kernel({ArchId::kSm80, Math::kId, {}, kIndex, EpilogueId{Open::kName}},
                         {find_workspace_sm80<typename Parts::Tile, Math, typename Parts::Epilogue,
                                              Parts::kAlignmentBytes>,
                          launch_gemm_sm80<typename Parts::Tile, Math, typename Parts::Epilogue,
                                           Parts::kAlignmentBytes>,
                          &kernel});
}

#define CUTLASS_FUSED_REGISTER_OPEN_SM80(name, Math, kIndex) \
  CUTLASS_FUSED_REGISTER(register_open_sm80<Math, kIndex>(#name))

}  // namespace cutlass_fused
