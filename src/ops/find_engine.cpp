// find_engine: what multiplies two fp32 matrices of K elements in a row on a GPU.
#include "cutlass_fused/plan/make_plan.hpp"
#include "checks/checks.hpp"
#include "checks/device.hpp"

#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

namespace cutlass_fused {
namespace {

std::string find_engine(int64_t device, int64_t k, std::string precision) {
  constexpr char kOp[] = "find_engine";
  Precision const checked = check_precision(kOp, precision);
  STD_TORCH_CHECK(k >= 0, kOp, ": k must not be negative, got ", k);
  supported_device(kOp, static_cast<int>(device));
  MathSpec const& math = spec_of(choose_math(DataType::kFloat32, checked, k));
  return math.engine == Engine::kSimt ? "simt" : math.name;
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CompositeExplicitAutograd, m) {
  m.impl("find_engine", TORCH_BOX(&find_engine));
}

}  // namespace
}  // namespace cutlass_fused
