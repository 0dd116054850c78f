// find_engine: what multiplies two fp32 matrices, (M, K) and (N, K), on a GPU, or, where they are
// mixed, a first one of 16 bits with an fp32 one; of M or N of 0, what multiplies large ones.
#include "cutlass_fused/gemm/mixed/choose.hpp"
#include "checks/checks.hpp"
#include "checks/device.hpp"
#include "launch/cublas/multiply.hpp"
#include "op_namespace.hpp"

#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

namespace cutlass_fused {
namespace {

std::string find_engine(int64_t device, int64_t k, std::string precision, int64_t m, int64_t n,
                        bool mixed) {
  constexpr char kOp[] = "find_engine";
  Precision const checked = check_precision(kOp, precision);
  STD_TORCH_CHECK(m >= 0 && n >= 0 && k >= 0, kOp, ": m, n and k must not be negative, got ", m,
                  ", ", n, " and ", k);
  Device const& gpu = supported_device(kOp, static_cast<int>(device));
  MathId const math = choose_math(DataType::kFloat32, checked, k);
  if (m > 0 && n > 0) {
    Problem const problem{math, m, n, k, DataType::kFloat32, {k}, {k}, {n}};
    Tail const tail{Tail::kEpilogue, names::kScaleLeakyReLU};
    if (mixed && choose_mixed(problem, tail, gpu, nullptr).by == ProductBy::kTf32x3) {
      return kTf32x3Name;
    }
    Plan const plan = make_plan(problem, tail, gpu, {nullptr, nullptr, strike_missing()});
    if (plan.product.by == ProductBy::kTf32x3) return kTf32x3Name;
    if (plan.product.by == ProductBy::kCublas) return kCublasName;
  }
  return spec_of(math).engine == Engine::kSimt ? "simt" : spec_of(math).name;
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("find_engine", TORCH_BOX(&find_engine));
}

}  // namespace
}  // namespace cutlass_fused
