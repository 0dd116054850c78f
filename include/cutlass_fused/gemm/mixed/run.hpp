// A product of 16-bit x with an fp32 weight as they lie, by kernels that were compiled: these
// register themselves when the library is loaded.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/epilogue/id.hpp"
#include "cutlass_fused/gemm/tf32x3/operands.hpp"
#include "cutlass_fused/gemm/tf32x3/shares.hpp"

namespace cutlass_fused {

// Whether there are kernels with this tile of TilesTf32x3: those of a short K gain nothing.
constexpr bool has_mixed_kernels(TileShapeTf32x3 const& tile) {
  return tile.arch == ArchId::kSm80 && tile.k == 64;
}

// As RunTf32x3 (gemm/tf32x3/run.hpp); product.x has numbers of x_type, in rows along K that begin
// at multiples of 16 bytes, and so do the lines of the weight.
using RunMixed = Status (*)(FloatProduct const&, DataType x_type, int tile, SharesTf32x3 const&,
                            void* workspace, void const* args, bool is_bare, Device const&,
                            cudaStream_t);

// As in gemm/registry.hpp.
bool register_mixed(EpilogueId epilogue, RunMixed run);
RunMixed find_mixed(EpilogueId epilogue);

}  // namespace cutlass_fused
