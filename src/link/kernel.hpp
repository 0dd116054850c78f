// Kernels from source: compiled, loaded, and ready to be launched.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

namespace cutlass_fused::link {

struct Kernel {
  CUkernel kernel = nullptr;  // of all GPUs of this architecture; null: it failed
  std::string error;          // why
};

// The kernel of this name in a source, for an architecture such as "sm_90". It is made once in a
// process, and then stays, also if it failed.
std::shared_ptr<Kernel const> find_kernel(std::string const& source, std::string const& name,
                                          std::string const& arch);

// On the current GPU, where the driver would else load it at its first launch. False: it cannot be.
bool load_kernel(Kernel const& kernel);

}  // namespace cutlass_fused::link
