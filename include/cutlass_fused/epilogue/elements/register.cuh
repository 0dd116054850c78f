// Registers what an epilogue is needed for beside its kernels on tensor cores. Included by
// generated files only.
#pragma once

#include "cutlass_fused/epilogue/elements/apply.cuh"
#include "cutlass_fused/gemm/fp16x3/repair_rows.cuh"
#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/gemm/simt/kernel.cuh"

namespace cutlass_fused {

template <class Epilogue, bool kAnyMajor>
bool register_epilogue() {
  using Args = typename Epilogue::Args;
  static constexpr auto kArgs = [](void const* args) -> Args const& {
    return *static_cast<Args const*>(args);
  };
  return register_epilogue(
      EpilogueId{Epilogue::kName},
      {[](GemmArgs const& gemm, void const* args, Device const& device, cudaStream_t stream) {
         return run_gemm_simt<Epilogue>(gemm, kArgs(args), device, stream);
       },
       [](GemmArgs const& gemm, int64_t batch, float const* acc, void const* args,
          Device const& device, cudaStream_t stream) {
         return run_apply_epilogue<Epilogue>(gemm, batch, acc, kArgs(args), device, stream);
       },
       [](GemmArgs const& gemm, void const* args, SplitMatrix const& x, SplitMatrix const& weight,
          Device const& device, cudaStream_t stream) {
         return run_repair_rows<Epilogue, kAnyMajor>(gemm, kArgs(args), x, weight, device, stream);
       }});
}

// any_major: its products read operands in either order, and so shall their repair.
#define CUTLASS_FUSED_REGISTER_EPILOGUE(Epilogue, any_major) \
  CUTLASS_FUSED_REGISTER(register_epilogue<Epilogue, any_major>())

}  // namespace cutlass_fused
