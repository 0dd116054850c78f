// CUDA C++ to machine code, by NVRTC: once in a process for each source and GPU, and once for all
// processes where the cache can be written. What the cache has takes no NVRTC, whichever version of
// it made that.
#pragma once

#include <memory>
#include <string>

namespace cutlass_fused::link {

struct Compiled {
  std::string cubin;        // empty: it failed
  std::string error;        // why, with the compiler's log
  bool is_kept = false;     // it came from the cache
  std::string cache_error;  // why the cache could not be written; empty: it was, or needed not be
};

// `arch`: "sm_90a". A failure stays, too: no second call compiles the same in vain.
std::shared_ptr<Compiled const> compile(std::string const& source, std::string const& arch);

// The same in place of what the cache has, which this machine cannot run.
std::shared_ptr<Compiled const> compile_anew(std::string const& source, std::string const& arch);

}  // namespace cutlass_fused::link
