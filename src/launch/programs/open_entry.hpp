// The kernel that is made of an open one (OpenKernel of gemm/registry.hpp) and a program.
#pragma once

#include <string>

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/program/slots.hpp"
#include "checks/device.hpp"
#include "launch/programs/linking.hpp"

namespace cutlass_fused {

struct OpenEntry {
  enum State {
    kLinked,
    kFailed,    // it cannot be linked, and no call tries again
    kMissing,   // it is not linked, and the call may not
    kCaptured,  // ... since a graph is captured
    kPending    // it is being linked
  };
  State state = kMissing;
  void const* kernel = nullptr;  // of kLinked, as CUDA's runtime launches it, with its memory
  std::string error = {};        // of kFailed
};

// Once in a process for each GPU, whoever asks. In a capture a kernel that is being linked is
// waited for, since the graph keeps what it is given.
OpenEntry find_open_entry(std::string const& text, program::Program const& program,
                          program::Slots const& slots, OpenKernel const& kernel,
                          Device const& device, LinkWhen when);

}  // namespace cutlass_fused
