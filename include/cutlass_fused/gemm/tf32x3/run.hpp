// A product of fp32 matrices as they lie, by tf32x3 kernels: those that were compiled register
// themselves when the library is loaded.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/epilogue/id.hpp"
#include "cutlass_fused/gemm/tf32x3/operands.hpp"
#include "cutlass_fused/gemm/tf32x3/shares.hpp"

namespace cutlass_fused {

struct OpenKernel;  // of gemm/registry.hpp

// y = epilogue(x @ weight.T), with a tile of TilesTf32x3 and K cut into shares. The workspace is of
// workspace_tf32x3 bytes. An epilogue that `is_bare` changes nothing. kNoKernel: there is none that
// reads operands of this order.
using RunTf32x3 = Status (*)(FloatProduct const&, int tile, SharesTf32x3 const&, void* workspace,
                             void const* args, bool is_bare, Device const&, cudaStream_t);

// As in gemm/registry.hpp: what runs the tiles of a generation.
bool register_tf32x3(ArchId arch, EpilogueId epilogue, RunTf32x3 run);
RunTf32x3 find_tf32x3(ArchId arch, EpilogueId epilogue);

// Those with an open epilogue (epilogue/open/open.hpp): for compute capability 9.0, of matrices
// along K in whole pieces, whose K is not cut into parts. `in_tf32`: one product of TF32 numbers,
// else three. `kernel` stays for ever.
bool register_open_tf32x3(int tile, bool in_tf32, OpenKernel const* kernel);
// Null: there is none.
OpenKernel const* find_open_tf32x3(int tile, bool in_tf32);

}  // namespace cutlass_fused
