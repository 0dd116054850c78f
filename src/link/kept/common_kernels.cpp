#include "link/kept/common_kernels.hpp"

#include <vector>

#include "link/kept/beside_library.hpp"
#include "link/open/inflate.hpp"
#include "link/open/ptx_lines.hpp"
#include "link/open/sha256.hpp"

namespace cutlass_fused::link {
namespace {

constexpr std::string_view kFirst = "cutlass_fused common kernels 1\n";
constexpr char kPackName[] = "common_kernels.bin";
constexpr size_t kSumSize = 32;
// More than any kernel, so that a wrong size allocates nothing absurd.
constexpr int kMostCodeBytes = 1 << 26;

}  // namespace

CommonKernels::CommonKernels(std::string const& path, std::string bytes)
    : bytes_(std::move(bytes)) {
  std::string const error = read_list();
  if (error.empty()) return;
  error_ = path + ": " + error;
  kernels_.clear();
}

std::string CommonKernels::read_list() {
  std::string_view const text = bytes_;
  if (text.empty()) return "there is no such file, or nothing in it";
  if (text.substr(0, kFirst.size()) != kFirst) return "it is no pack of common kernels";
  size_t const end = text.find("\n\n");
  if (end == std::string_view::npos) return "it is cut off";
  std::string_view list = text.substr(0, end + 2), rest = text.substr(list.size());
  if (rest.size() < kSumSize) return "it is cut off";
  if (sha256(list) != rest.substr(0, kSumSize)) return "the sum of its list is wrong";
  rest.remove_prefix(kSumSize);
  list.remove_prefix(kFirst.size());
  for (std::string_view line = take_line(list); !line.empty(); line = take_line(list)) {
    std::string const key = read_sum(take_word(line)), sum = read_sum(take_word(line));
    int const size = to_number(take_word(line)), packed = to_number(take_word(line));
    if (key.empty() || sum.empty() || size < 0 || size > kMostCodeBytes || packed < 0 ||
        !line.empty()) {
      return "a line of its list is wrong";
    }
    if (static_cast<size_t>(packed) > rest.size()) return "it is cut off";
    kernels_[key] = {sum, static_cast<size_t>(size), rest.substr(0, static_cast<size_t>(packed))};
    rest.remove_prefix(static_cast<size_t>(packed));
  }
  return rest.empty() ? "" : "there is something behind its kernels";
}

std::optional<std::string> CommonKernels::read(std::string_view key) const {
  if (kernels_.empty()) return {};
  auto const found = kernels_.find(sha256(key));
  if (found == kernels_.end()) return {};
  auto content = inflate(found->second.bytes, found->second.size);
  if (!content || sha256(*content) != found->second.sum) return {};
  return content;
}

CommonKernels read_common_kernels(std::string const& path) {
  return CommonKernels(path, read_file(path));
}

CommonKernels const& find_common_kernels() {
  // Never destroyed: a thread may link until the process has ended.
  static auto const* const kernels =
      new CommonKernels(read_common_kernels(find_beside_library(kPackName)));
  return *kernels;
}

}  // namespace cutlass_fused::link
