// Open kernels for every GPU, as PTX: included by the generated files that `nvcc -ptx` compiles.
#pragma once

#include "cutlass_fused/epilogue/open/choose_sm80.hpp"

namespace cutlass_fused {

// A kernel of the kIndexth tile of a Math row, under a name that can be read.
#define CUTLASS_FUSED_OPEN_KERNEL_SM80(name, Math, kIndex)                                     \
  extern "C" __global__ void __launch_bounds__(OpenGemmSm80<Math, kIndex>::kThreads, 1)        \
      name(__grid_constant__ OpenGemmSm80<Math, kIndex>::Params const params) {                \
    using Kernel = OpenGemmSm80<Math, kIndex>::Kernel;                                         \
    extern __shared__ __align__(16) unsigned char shared_memory[];                             \
    Kernel::invoke(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared_memory)); \
  }

}  // namespace cutlass_fused
