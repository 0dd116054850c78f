// build_info: what this library was built from and for, as JSON. The build passes the macros to
// this file alone, so that a change of architectures recompiles nothing that does not depend on it.
#include <torch/csrc/stable/library.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cutlass_fused/gemm/tf32x3/tiles.hpp"
#include "cutlass_fused/plan/archs.hpp"
#include "checks/device.hpp"
#include "checks/json.hpp"
#include "link/kept/common_kernels.hpp"
#include "link/open/open_kernels.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

std::vector<std::string> list_words(std::string const& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ';');) parts.push_back(part);
  return parts;
}

// "9.0a" -> 90
int capability_of(std::string const& arch) {
  size_t const dot = arch.find('.');
  return std::atoi(arch.substr(0, dot).c_str()) * 10 + std::atoi(arch.substr(dot + 1).c_str());
}

std::string json_list(std::vector<std::string> const& items) {
  std::string text = "[";
  for (std::string const& item : items) {
    text += (text.size() > 1 ? ", \"" : "\"") + item + "\"";
  }
  return text + "]";
}

std::vector<std::string> list_tiles(ArchSpec const& arch, MathId math) {
  std::vector<std::string> names;
  for (int i = 0; i < arch.count(math); ++i) names.push_back(arch.name_tile(math, i));
  return names;
}

// A list for each generation's tiles of bf16, and one for each Math row that has others, which are
// empty where the generation was not compiled; and the tiles of tf32x3 that were compiled.
std::string json_tiles() {
  std::string text;
  for (ArchRow const& row : kArchRows) {
    ArchSpec const& arch = spec_of(row.id);
    std::vector<std::string> const common = list_tiles(arch, MathId::kBf16);
    for (MathId math : kMathIds) {
      std::vector<std::string> const names = list_tiles(arch, math);
      bool const is_common = math == MathId::kBf16;
      if (!is_common && (names.empty() || names == common)) continue;
      text += std::string(", \"tiles_") + arch.name + (is_common ? "" : "_") +
              (is_common ? "" : spec_of(math).name) +
              "\": " + json_list(is_compiled(row.id) ? names : std::vector<std::string>{});
    }
  }
  std::vector<std::string> tf32x3;
  for (TileShapeTf32x3 const& tile : TilesTf32x3::kShapes) {
    if (is_compiled(tile.arch)) tf32x3.push_back(tile.name());
  }
  return text + ", \"tiles_tf32x3\": " + json_list(tf32x3);
}

std::vector<std::string> list_untested() {
  std::vector<std::string> listed;
  for (ArchRow const& row : kArchRows) {
    if (!row.tested && is_compiled(row.id)) listed.push_back(row.listed);
  }
  return listed;
}

// How many there are, or why there is none.
std::string json_open_kernels() {
  link::OpenKernels const& kernels = link::find_open_kernels();
  return kernels.error().empty() ? std::to_string(kernels.all().size())
                                 : json_text(kernels.error());
}

// How many of each architecture.
std::string json_open_archs() {
  std::map<std::string, int> counts;
  for (auto const& [name, kernel] : link::find_open_kernels().all()) ++counts[kernel.arch];
  std::string text = "{";
  for (auto const& [arch, count] : counts) {
    text += (text.size() > 1 ? ", " : "") + json_text(arch) + ": " + std::to_string(count);
  }
  return text + "}";
}

// The same of those that are linked already.
std::string json_common_kernels() {
  link::CommonKernels const& kernels = link::find_common_kernels();
  return kernels.error().empty() ? std::to_string(kernels.size()) : json_text(kernels.error());
}

std::string build_info() {
  std::string const ptx = CUTLASS_FUSED_PTX;
  return std::string("{\"cutlass\": \"") + CUTLASS_FUSED_CUTLASS_VERSION + "\", \"cuda\": \"" +
         CUTLASS_FUSED_CUDA_VERSION +
         "\", \"archs\": " + json_list(list_words(CUTLASS_FUSED_ARCHS)) +
         ", \"untested\": " + json_list(list_untested()) +
         ", \"ptx\": " + (ptx.empty() ? "null" : "\"" + ptx + "\"") +
         ", \"torch_target\": \"2.10\", \"open_kernels\": " + json_open_kernels() +
         ", \"open_archs\": " + json_open_archs() +
         ", \"common_kernels\": " + json_common_kernels() + json_tiles() + "}";
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("build_info", TORCH_BOX(&build_info));
}

}  // namespace

std::string compiled_architectures() {
  std::string text;
  for (std::string const& arch : list_words(CUTLASS_FUSED_ARCHS)) {
    text += (text.empty() ? "" : ", ") + arch;
  }
  return text;
}

// Machine code runs on its own major version from its minor version up; PTX on anything newer.
bool has_code_for(int compute_capability) {
  std::string const ptx = CUTLASS_FUSED_PTX;
  if (!ptx.empty() && capability_of(ptx) <= compute_capability) return true;
  for (std::string const& arch : list_words(CUTLASS_FUSED_ARCHS)) {
    int const compiled = capability_of(arch);
    if (compiled / 10 == compute_capability / 10 && compiled <= compute_capability) return true;
  }
  return false;
}

int code_for(int compute_capability) {
  for (std::string const& arch : list_words(CUTLASS_FUSED_ARCHS)) {
    if (capability_of(arch) == 90 && compute_capability == 90) return 90;
  }
  return 80;
}

ArchSet archs_for(int compute_capability) {
  ArchSet archs;
  for (ArchRow const& row : kArchRows) {
    bool const runs = row.gpu == 0 || row.gpu == compute_capability;
    if (runs && is_compiled(row.id)) archs = archs.with(row.id);
  }
  return archs;
}

bool is_compiled(ArchId arch) {
  std::string const wanted = kArchRows[static_cast<int>(arch)].listed;
  if (wanted.empty()) return true;
  for (std::string const& listed : list_words(CUTLASS_FUSED_ARCHS)) {
    if (listed == wanted) return true;
  }
  return false;
}

}  // namespace cutlass_fused
