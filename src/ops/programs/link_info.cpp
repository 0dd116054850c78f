// link_info: with what programs are linked and where that is kept, as JSON.
#include "checks/json.hpp"
#include "link/kept/disk_cache.hpp"
#include "link/nvrtc.hpp"
#include "op_namespace.hpp"

#include <torch/csrc/stable/library.h>

namespace cutlass_fused {
namespace {

// The folder, and why nothing is read from it.
std::string describe(link::DiskCache const& cache) {
  return "{\"folder\": " + json_text(cache.folder()) +
         ", \"refusal\": " + json_text(cache.find_refusal()) + "}";
}

std::string link_info() {
  link::FoundNvrtc const& found = link::find_nvrtc();
  std::string const version =
      std::to_string(found.nvrtc.major) + "." + std::to_string(found.nvrtc.minor);
  auto const cache = link::DiskCache::find();
  return "{\"nvrtc\": " + (found.is_there ? json_text(version) : "null") +
         ", \"nvrtc_path\": " + json_text(found.nvrtc.path) +
         ", \"nvrtc_error\": " + json_text(found.reason) +
         ", \"cache\": " + (cache ? describe(*cache) : "null") +
         ", \"linked\": " + describe(link::DiskCache::find_linked()) + "}";
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("link_info", TORCH_BOX(&link_info));
}

}  // namespace
}  // namespace cutlass_fused
