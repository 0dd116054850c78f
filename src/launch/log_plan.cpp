#include "launch/log_plan.hpp"

#include <cstdio>
#include <cstdlib>

namespace cutlass_fused {

bool logs_plans() {
  static bool const enabled = [] {
    char const* value = std::getenv("CUTLASS_FUSED_LOG");
    return value != nullptr && value[0] != '\0' && value[0] != '0';
  }();
  return enabled;
}

void write_plan(Product const& product, Plan const& plan, char const* math) {
  Problem const& problem = product.problem;
  if (math == nullptr) math = describe_math(plan.product, problem.math);
  std::fprintf(stderr, "cutlass_fused: %s %s %s M=%lld N=%lld K=%lld: %s\n",
               describe_arch(plan.product), math, product.op, static_cast<long long>(problem.m),
               static_cast<long long>(problem.n), static_cast<long long>(problem.k),
               describe(plan, problem.math).c_str());
}

}  // namespace cutlass_fused
