// What a product of split rows could not compute, in fp32.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Writes y[m, n] = epilogue(x[m] . weight[n]) anew where it is NaN and either row has lost
// something (split_rows.hpp), and nothing else. `gemm` is of the fp32 matrices; where its weight is
// null, the split one is read in its place. kAnyMajor: tensor cores repair products of matrices
// that do not lie along K, too.
template <class Epilogue, bool kAnyMajor>
Status run_repair_rows(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                       SplitMatrix const& x, SplitMatrix const& weight, Device const& device,
                       cudaStream_t stream);

}  // namespace cutlass_fused
