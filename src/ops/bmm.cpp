// bmm: y[b] = x[b] @ weight[b].T
#include "launch/as_they_lie/batched_product.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

Tensor bmm(Tensor x, Tensor weight, std::string precision) {
  constexpr char kOp[] = "bmm";
  DataType const type = check_batches(kOp, x, weight);
  return run_batched(kOp, x, weight, type, check_precision(kOp, precision));
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) { m.impl("bmm", TORCH_BOX(&bmm)); }

}  // namespace
}  // namespace cutlass_fused
