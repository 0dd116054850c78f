// The epilogue alone, for a product that another library computed.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// y = epilogue(acc), with acc (batch, m, n) contiguous. Of `gemm` it takes m, n and y, whose rows
// lie ldy apart throughout a batch. acc may be y itself, if that is contiguous and of fp32: a
// thread reads what it writes, and before it does.
template <class Epilogue>
Status run_apply_epilogue(GemmArgs const& gemm, int64_t batch, float const* acc,
                          typename Epilogue::Args const& epilogue, Device const& device,
                          cudaStream_t stream);

}  // namespace cutlass_fused
