// The epilogue alone, for a product that another library computed.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// y = epilogue(acc), with acc (m, n) contiguous. Of `gemm` it takes m, n and y. acc may be y
// itself, if that is contiguous and of fp32: a thread reads what it writes, and before it does.
template <class Epilogue>
Status run_apply_epilogue(GemmArgs const& gemm, float const* acc,
                          typename Epilogue::Args const& epilogue, Device const& device,
                          cudaStream_t stream);

}  // namespace cutlass_fused
