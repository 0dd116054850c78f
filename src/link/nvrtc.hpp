// NVRTC, NVIDIA's compiler as a library. PyTorch depends on it, so that it is where PyTorch is; it
// is opened when something is first compiled. No header of it is needed: a minimal toolkit has
// none. The variable CUTLASS_FUSED_NVRTC names another file.
#pragma once

#include <cstddef>
#include <string>

namespace cutlass_fused::link {

struct Nvrtc {
  using Program = void*;
  using Result = int;  // 0: success

  int major = 0, minor = 0;
  std::string path;

  Result (*version)(int* major, int* minor);
  char const* (*describe)(Result);
  Result (*create)(Program*, char const* source, char const* name, int headers,
                   char const* const* header_sources, char const* const* header_names);
  Result (*compile)(Program, int options, char const* const* values);
  Result (*destroy)(Program*);
  Result (*log_size)(Program, size_t*);
  Result (*log)(Program, char*);
  Result (*ptx_size)(Program, size_t*);
  Result (*ptx)(Program, char*);
  Result (*cubin_size)(Program, size_t*);
  Result (*cubin)(Program, char*);
};

// Either there, or why not. Looked for once in a process; any thread may ask.
struct FoundNvrtc {
  bool is_there = false;
  Nvrtc nvrtc{};
  std::string reason;
};
FoundNvrtc const& find_nvrtc();

}  // namespace cutlass_fused::link
