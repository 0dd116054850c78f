#include "link/open/open_kernels.hpp"

#include "link/kept/beside_library.hpp"

namespace cutlass_fused::link {

OpenKernels::OpenKernels(std::string const& path, std::string bytes) : bytes_(std::move(bytes)) {
  PackReader reader(bytes_, "cutlass_fused open kernels 2\n", "open kernels");
  std::string last;
  while (reader.next()) {
    std::string const name{reader.word()}, arch{reader.word()};
    int const param_bytes = reader.number();
    auto const text = reader.piece();
    if (param_bytes < 0) reader.fail("a line of its list is wrong");
    if (arch != "sm_90a" && arch != "compute_80") reader.fail("it has kernels for " + arch);
    if (name <= last) reader.fail("its list is not sorted");
    if (text) kernels_[name] = {arch, param_bytes, *text};
    last = name;
  }
  if (reader.error().empty()) return;
  error_ = path + ": " + reader.error();
  kernels_.clear();
}

PackedKernel const* OpenKernels::find(std::string const& name) const {
  auto const found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &found->second;
}

OpenKernels read_open_kernels(std::string const& path) {
  return OpenKernels(path, read_file(path));
}

OpenKernels const& find_open_kernels() {
  // Never destroyed: a thread may link until the process has ended.
  static auto const* const kernels =
      new OpenKernels(read_open_kernels(find_beside_library("open_kernels.bin")));
  return *kernels;
}

}  // namespace cutlass_fused::link
