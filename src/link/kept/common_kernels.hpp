// Kernels that were linked when the library was built: those of common epilogues. They are in the
// pack (pack.hpp) common_kernels.bin beside it, which cutlass_fused/build_epilogues/pack.py writes:
//
//   cutlass_fused common kernels 2
//   KEY UNPACKED_BYTES PACKED_BYTES SUM    a line for each kernel, sorted; KEY is the SHA-256 of
//   ...                                    the key that the cache on disk has it under
//
// Such a key holds the text of the kernel and the architecture, so that a file of another build has
// nothing for this one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "link/kept/pack.hpp"

namespace cutlass_fused::link {

class CommonKernels {
 public:
  // `path`: for error().
  CommonKernels(std::string const& path, std::string bytes);
  CommonKernels(CommonKernels const&) = delete;  // kernels lie in its bytes

  // Why there are none; empty: there are.
  std::string const& error() const { return error_; }
  size_t size() const { return kernels_.size(); }

  // The content of a key. Nothing: it is not there, or damaged.
  std::optional<std::string> read(std::string_view key) const;

 private:
  std::string bytes_;
  std::string error_;
  std::map<std::string, PackedPiece> kernels_;  // by the sums of their keys
};

// Those of a file.
CommonKernels read_common_kernels(std::string const& path);

// Those of this library, which are read when they are first asked for. Any thread may ask.
CommonKernels const& find_common_kernels();

}  // namespace cutlass_fused::link
