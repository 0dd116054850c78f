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

// That of machine code, which is loaded and stays: graphs may hold it.
Kernel load_kernel(std::string const& cubin, std::string const& name);

// On the current GPU, where the driver would else load it at its first launch. False: it cannot be.
bool prepare_kernel(Kernel const& kernel);

// Lets it have so much dynamic shared memory on a GPU, by its ordinal. Why not; empty: it has.
std::string allow_shared_memory(CUkernel kernel, int bytes, int device);

}  // namespace cutlass_fused::link
