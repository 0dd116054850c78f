#include "link/open/open_kernels.hpp"

#include <vector>

#include "link/kept/beside_library.hpp"
#include "link/open/inflate.hpp"
#include "link/open/ptx_lines.hpp"
#include "link/open/sha256.hpp"

namespace cutlass_fused::link {
namespace {

constexpr std::string_view kFirstLine = "cutlass_fused open kernels 2\n";
constexpr char kFileName[] = "open_kernels.bin";
constexpr size_t kSumBytes = 32;
// More than any text, so that a wrong size allocates nothing absurd.
constexpr int kMostTextBytes = 1 << 26;

}  // namespace

OpenKernels::OpenKernels(std::string const& path, std::string bytes) : bytes_(std::move(bytes)) {
  std::string const error = read();
  if (error.empty()) return;
  error_ = path + ": " + error;
  kernels_.clear();
}

std::string OpenKernels::read() {
  std::string_view const text = bytes_;
  if (text.empty()) return "there is no such file, or nothing in it";
  if (text.substr(0, kFirstLine.size()) != kFirstLine) return "it is no pack of open kernels";
  size_t const end = text.find("\n\n");
  if (end == std::string_view::npos) return "it is cut off";
  std::string_view list = text.substr(0, end + 2), rest = text.substr(list.size());
  if (rest.size() < kSumBytes) return "it is cut off";
  if (sha256(list) != rest.substr(0, kSumBytes)) return "its sum is wrong";
  rest.remove_prefix(kSumBytes);
  list.remove_prefix(kFirstLine.size());
  std::vector<size_t> sizes;
  std::string last;
  for (std::string_view line = take_line(list); !line.empty(); line = take_line(list)) {
    std::string const name{take_word(line)}, arch{take_word(line)};
    int const param_bytes = to_number(take_word(line)), size = to_number(take_word(line));
    int const packed = to_number(take_word(line));
    std::string const sum = read_sum(take_word(line));
    if (param_bytes < 0 || size < 0 || size > kMostTextBytes || packed < 0 || sum.empty() ||
        !line.empty()) {
      return "a line of its list is wrong";
    }
    if (arch != "sm_90a" && arch != "compute_80") return "it has kernels for " + arch;
    if (name <= last) return "its list is not sorted";
    last = name;
    kernels_[name] = {arch, param_bytes, static_cast<size_t>(size), sum, {}};
    sizes.push_back(static_cast<size_t>(packed));
  }
  size_t i = 0;
  for (auto& [name, kernel] : kernels_) {
    size_t const size = sizes[i++];
    if (size > rest.size()) return "it is cut off";
    kernel.packed = rest.substr(0, size);
    rest.remove_prefix(size);
  }
  return rest.empty() ? "" : "there is something behind its texts";
}

PackedKernel const* OpenKernels::find(std::string const& name) const {
  auto const found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &found->second;
}

std::optional<std::string> unpack(PackedKernel const& kernel) {
  auto text = inflate(kernel.packed, kernel.size);
  if (text && sha256(*text) != kernel.sum) return {};
  return text;
}

OpenKernels read_open_kernels(std::string const& path) {
  return OpenKernels(path, read_file(path));
}

OpenKernels const& find_open_kernels() {
  // Never destroyed: a thread may link until the process has ended.
  static auto const* const kernels =
      new OpenKernels(read_open_kernels(find_beside_library(kFileName)));
  return *kernels;
}

}  // namespace cutlass_fused::link
