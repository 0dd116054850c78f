// bmm: y[b] = x[b] @ weight[b].T
#include "launch/as_they_lie/batched_product.hpp"

namespace cutlass_fused {
namespace {

void check_batch(char const* op, char const* name, Tensor const& batch, char const* shape) {
  STD_TORCH_CHECK(batch.dim() == 3, op, ": ", name, " must have 3 dimensions ", shape,
                  ", got shape ", shape_string(batch));
}

Tensor bmm(Tensor x, Tensor weight, std::string precision) {
  constexpr char kOp[] = "bmm";
  check_batch(kOp, "x", x, "(B, M, K)");
  check_batch(kOp, "weight", weight, "(B, N, K)");
  DataType const type = check_types(kOp, x, weight);
  check_device(kOp, "weight", weight, x);
  STD_TORCH_CHECK(weight.size(0) == x.size(0) && weight.size(2) == x.size(2), kOp,
                  ": weight must have shape (B, N, K) = (", x.size(0), ", *, ", x.size(2),
                  "), got ", shape_string(weight));
  return run_batched(kOp, x, weight, type, check_precision(kOp, precision));
}

STABLE_TORCH_LIBRARY_IMPL(cutlass_fused, CUDA, m) { m.impl("bmm", TORCH_BOX(&bmm)); }

}  // namespace
}  // namespace cutlass_fused
