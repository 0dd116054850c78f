// build_info: what this library was built from and for, as JSON. The build passes the macros to
// this file alone, so that a change of architectures recompiles nothing that does not depend on it.
#include <torch/csrc/stable/library.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "cutlass_fused/plan/archs.hpp"
#include "checks/device.hpp"

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

// A generation that was not compiled has none.
std::string tile_names(ArchSpec const& arch, MathId math) {
  std::vector<std::string> names;
  for (int i = 0; is_compiled(arch.id) && i < arch.count(math); ++i) {
    names.push_back(arch.name_tile(math, i));
  }
  return json_list(names);
}

std::string build_info() {
  std::string const ptx = CUTLASS_FUSED_PTX;
  return std::string("{\"cutlass\": \"") + CUTLASS_FUSED_CUTLASS_VERSION + "\", \"cuda\": \"" +
         CUTLASS_FUSED_CUDA_VERSION +
         "\", \"archs\": " + json_list(list_words(CUTLASS_FUSED_ARCHS)) +
         ", \"ptx\": " + (ptx.empty() ? "null" : "\"" + ptx + "\"") +
         ", \"torch_target\": \"2.10\", \"tiles_sm80\": " + tile_names(spec_sm80(), MathId::kBf16) +
         ", \"tiles_sm80_fp16x3\": " + tile_names(spec_sm80(), MathId::kFp16x3) +
         ", \"tiles_sm90\": " + tile_names(spec_sm90(), MathId::kBf16) +
         ", \"tiles_sm90_fp16x3\": " + tile_names(spec_sm90(), MathId::kFp16x3) +
         ", \"tiles_sm90_fp16x1\": " + tile_names(spec_sm90(), MathId::kFp16x1) + "}";
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CompositeExplicitAutograd, m) {
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

// SM90 kernels use instructions of 9.0 alone.
ArchSet archs_for(int compute_capability) {
  ArchSet archs = ArchSet().with(ArchId::kSm80);
  if (compute_capability == 90 && is_compiled(ArchId::kSm90)) archs = archs.with(ArchId::kSm90);
  return archs;
}

bool is_compiled(ArchId arch) {
  if (arch == ArchId::kSm80) return true;
  for (std::string const& listed : list_words(CUTLASS_FUSED_ARCHS)) {
    if (listed == "9.0a") return true;
  }
  return false;
}

}  // namespace cutlass_fused
