// CUDA C++ to machine code, by NVRTC: once in a process for each source and GPU, and once for all
// processes where the cache can be written. What the cache has, or was linked ahead of time or when
// the library was built, takes no NVRTC, whichever version of it made that.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cutlass_fused::link {

struct Compiled {
  std::string code;         // empty: it failed
  std::string error;        // why, with the compiler's log
  bool is_kept = false;     // no NVRTC was needed
  std::string cache_error;  // why the cache could not be written; empty: it was, or needed not be
};

// The machine code of a source; `arch`: "sm_90a". A failure stays, too: no second call compiles the
// same in vain.
std::shared_ptr<Compiled const> compile(std::string const& source, std::string const& arch);

// The same in place of what the cache has, which this machine cannot run.
std::shared_ptr<Compiled const> compile_anew(std::string const& source, std::string const& arch);

// Whether compile() would need no NVRTC.
bool is_kept(std::string const& source, std::string const& arch);

// What these are made of. NVRTC alone, whatever was compiled before:
enum class Form { kCubin, kPtx };
Compiled run_nvrtc(std::string const& source, std::string const& arch,
                   std::vector<std::string> const& options, Form form);
// What was linked ahead of time, or the cache has, or came with the library, of a key.
std::optional<std::string> read_kept(std::string const& key);
// That, else what is made, which is then kept.
Compiled read_or_make(std::string const& key, std::function<Compiled()> const& make);

}  // namespace cutlass_fused::link
