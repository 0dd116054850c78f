// Open kernels for SM90, as PTX: included by the generated files that `nvcc -ptx` compiles.
#pragma once

#include "cutlass_fused/epilogue/open/choose_sm90.hpp"

namespace cutlass_fused {

// A kernel of the kIndexth tile of a Math row, under a name that can be read.
#define CUTLASS_FUSED_OPEN_KERNEL_SM90(name, Math, kIndex)                              \
  extern "C" __global__ void __launch_bounds__(OpenGemmSm90<Math, kIndex>::kThreads, 1) \
      name(__grid_constant__ OpenGemmSm90<Math, kIndex>::Params const params) {         \
    extern __shared__ __align__(1024) char shared_memory[];                             \
    OpenGemmSm90<Math, kIndex>::run(params, shared_memory);                             \
  }

}  // namespace cutlass_fused
