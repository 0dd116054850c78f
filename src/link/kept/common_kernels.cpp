#include "link/kept/common_kernels.hpp"

#include "link/kept/beside_library.hpp"

namespace cutlass_fused::link {

CommonKernels::CommonKernels(std::string const& path, std::string bytes)
    : bytes_(std::move(bytes)) {
  PackReader reader(bytes_, "cutlass_fused common kernels 2\n", "common kernels");
  while (reader.next()) {
    std::string const key = read_sum(reader.word());
    if (key.empty()) reader.fail("a line of its list is wrong");
    if (auto const piece = reader.piece()) kernels_[key] = *piece;
  }
  if (reader.error().empty()) return;
  error_ = path + ": " + reader.error();
  kernels_.clear();
}

std::optional<std::string> CommonKernels::read(std::string_view key) const {
  if (kernels_.empty()) return {};
  auto const found = kernels_.find(sha256(key));
  if (found == kernels_.end()) return {};
  return unpack(found->second);
}

CommonKernels read_common_kernels(std::string const& path) {
  return CommonKernels(path, read_file(path));
}

CommonKernels const& find_common_kernels() {
  // Never destroyed: a thread may link until the process has ended.
  static auto const* const kernels =
      new CommonKernels(read_common_kernels(find_beside_library("common_kernels.bin")));
  return *kernels;
}

}  // namespace cutlass_fused::link
