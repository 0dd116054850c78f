// A program and an open kernel become machine code, in seconds and without nvcc: NVRTC compiles the
// program to PTX, which is put into that of the kernel (fill_kernel.hpp), and assembles it all.
#pragma once

#include <memory>
#include <string>

#include "cutlass_fused/program/slots.hpp"
#include "link/open/open_kernels.hpp"

namespace cutlass_fused::link {

struct Assembled {
  std::string cubin;        // empty: it failed
  std::string error;        // why, with the compiler's log
  std::string name;         // of the kernel in there
  int param_bytes = 0;      // of its one parameter
  bool is_kept = false;     // no NVRTC was needed
  std::string cache_error;  // why that could not be written
};

// `kernel`: its name in the pack; `compute_capability`: the GPU's, 90. Made once in a process, and
// then it stays, also if it failed; what the cache on disk has takes no NVRTC.
std::shared_ptr<Assembled const> assemble(OpenKernels const& kernels, std::string const& kernel,
                                          program::Program const& program,
                                          program::Slots const& slots, int compute_capability);

// Whether that would need no NVRTC.
bool is_assembled(OpenKernels const& kernels, std::string const& kernel,
                  program::Program const& program, program::Slots const& slots,
                  int compute_capability);

}  // namespace cutlass_fused::link
