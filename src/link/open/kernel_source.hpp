// A filled kernel as CUDA C++: NVRTC takes no PTX, but it assembles what stands in an asm. Its own
// assembler takes whole programs, where that of nvJitLink ignores setmaxnreg.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cutlass_fused::link {

struct Signature {
  std::string name;
  std::string align, bytes;  // of its one parameter
  std::string bounds;        // threads, and blocks of an SM where they are said
};

// Of PTX of one kernel, as nvcc writes it; nothing: it says something else.
std::optional<Signature> read_signature(std::string_view ptx);

// A kernel that has the name, the bounds and the bytes of the parameter, and the body as one asm.
// Empty: as above.
std::string make_kernel_source(std::string_view ptx);

}  // namespace cutlass_fused::link
