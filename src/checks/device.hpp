// The GPUs of this machine, and whether this build has code for them.
#pragma once

#include <string>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// Properties of a GPU, read once. Throws if it is older than sm_80, or if this build has neither
// machine code nor PTX for it: an unsupported GPU is named with what was compiled.
Device const& supported_device(char const* op, int index);

// What was compiled (build_info.cpp): "8.0, 9.0a", and whether that serves a compute capability.
std::string compiled_architectures();
bool has_code_for(int compute_capability);

// What __CUDA_ARCH__ / 10 was, at least, in the kernels without a product that such a GPU runs: 90
// or 80; the generations of products that it runs, and whether one was compiled.
int code_for(int compute_capability);
ArchSet archs_for(int compute_capability);
bool is_compiled(ArchId arch);

}  // namespace cutlass_fused
