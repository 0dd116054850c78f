// The open kernels that came with the library: PTX with marked lines (fill_kernel.hpp), in the pack
// (link/kept/pack.hpp) open_kernels.bin beside it, which src/build_system/open_kernels.py writes:
//
//   cutlass_fused open kernels 2
//   NAME ARCH PARAM_BYTES UNPACKED_BYTES PACKED_BYTES SUM
//   ...                              a line for each kernel, sorted by name; ARCH is sm_90a, or
//                                    compute_80, which newer GPUs run too; PARAM_BYTES are those of
//                                    its parameter
//
// A file that is anything else is no pack. What a text holds is looked at when it is unpacked: a
// process that finds its kernels on disk unpacks none.
#pragma once

#include <map>
#include <string>

#include "link/kept/pack.hpp"

namespace cutlass_fused::link {

struct PackedKernel {
  std::string arch;
  int param_bytes;
  PackedPiece text;
};

class OpenKernels {
 public:
  // `path`: for error().
  OpenKernels(std::string const& path, std::string bytes);
  OpenKernels(OpenKernels const&) = delete;  // kernels lie in its bytes

  // Why there are none; empty: there are.
  std::string const& error() const { return error_; }

  // Null: there is no such kernel.
  PackedKernel const* find(std::string const& name) const;

  std::map<std::string, PackedKernel> const& all() const { return kernels_; }

 private:
  std::string bytes_;
  std::string error_;
  std::map<std::string, PackedKernel> kernels_;
};

// Those of a file.
OpenKernels read_open_kernels(std::string const& path);

// Those of this library, which are read when they are first asked for. Any thread may ask.
OpenKernels const& find_open_kernels();

}  // namespace cutlass_fused::link
