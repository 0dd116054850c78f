// A product of fp32 matrices as they lie, by tf32x3 kernels: those that were compiled register
// themselves when the library is loaded.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/epilogue/id.hpp"
#include "cutlass_fused/gemm/tf32x3/operands.hpp"
#include "cutlass_fused/gemm/tf32x3/shares.hpp"

namespace cutlass_fused {

// y = epilogue(x @ weight.T), with a tile of TilesTf32x3 and K cut into shares. The workspace is of
// workspace_tf32x3 bytes. An epilogue that `is_bare` changes nothing. kNoKernel: there is none that
// reads operands of this order.
using RunTf32x3 = Status (*)(FloatProduct const&, int tile, SharesTf32x3 const&, void* workspace,
                             void const* args, bool is_bare, Device const&, cudaStream_t);

// As in gemm/registry.hpp: what runs the tiles of a generation.
bool register_tf32x3(ArchId arch, EpilogueId epilogue, RunTf32x3 run);
RunTf32x3 find_tf32x3(ArchId arch, EpilogueId epilogue);

}  // namespace cutlass_fused
