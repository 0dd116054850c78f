// The kernel that is made of an open one (OpenKernel of gemm/registry.hpp) and a program.
#pragma once

#include <string>

#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/program/slots.hpp"
#include "checks/device.hpp"

namespace cutlass_fused {

// As CUDA's runtime launches it, allowed its shared memory. It is made once in a process. Null: it
// cannot be made; stderr has said why, once, and no call tries again. Throws where it would have to
// be made while a graph is captured.
void const* find_open_entry(char const* op, std::string const& text,
                            program::Program const& program, program::Slots const& slots,
                            OpenKernel const& kernel, Device const& device);

}  // namespace cutlass_fused
