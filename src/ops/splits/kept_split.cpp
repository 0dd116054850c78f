// keep_split, renew_split: what split_weight makes of a weight that is trained, for more than one
// pass. A renewed split is that of what the weight holds now, whoever wrote to it.
#include "cutlass_fused/gemm/renew_rows.hpp"
#include "launch/product.hpp"
#include "checks/status.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

struct Checked {
  Matrices matrices;
  Device const& device;
  MarkedSplit split;
};

Checked check(char const* op, DeviceScope const& scope, Tensor const& weight,
              std::string const& precision) {
  Matrices const matrices = check_weight(op, weight);
  Device const& device = scope.device();
  constexpr int kLeast = 90;
  STD_TORCH_CHECK(device.compute_capability >= kLeast, op,
                  ": needs a GPU of compute capability 9.0, got ", device.compute_capability / 10,
                  ".", device.compute_capability % 10);
  MathId const math = choose_math(matrices.type, check_precision(op, precision), matrices.k);
  STD_TORCH_CHECK(splits_rows(math) && matrices.n > 0 && matrices.ldw != -1, op,
                  ": weight must be float32, in rows, and have parts, got shape ",
                  shape_string(weight));
  return {matrices, device, {layout_of_split(math, matrices, device)}};
}

void renew(char const* op, Checked const& checked, Tensor const& kept, bool is_new) {
  auto const* const from = static_cast<float const*>(checked.matrices.weight.const_data_ptr());
  check_status(
      op, run_renew_rows(checked.split, from, checked.matrices.ldw, kept.mutable_data_ptr(), is_new,
                         checked.device, current_stream(checked.device)));
}

Tensor keep_split(Tensor weight, std::string precision) {
  constexpr char kOp[] = "keep_split";
  DeviceScope const scope(kOp, weight);
  Checked const checked = check(kOp, scope, weight, precision);
  Tensor const kept = allocate(weight, {checked.split.bytes()}, ScalarType::Byte);
  renew(kOp, checked, kept, /*is_new=*/true);
  return kept;
}

void renew_split(Tensor kept, Tensor weight, std::string precision) {
  constexpr char kOp[] = "renew_split";
  DeviceScope const scope(kOp, weight);
  Checked const checked = check(kOp, scope, weight, precision);
  int64_t const bytes = checked.split.bytes();
  STD_TORCH_CHECK(kept.scalar_type() == ScalarType::Byte && kept.is_contiguous() &&
                      kept.numel() == bytes && kept.is_cuda() &&
                      kept.get_device_index() == weight.get_device_index(),
                  kOp, ": kept must be what keep_split returned for this weight and precision, ",
                  bytes, " bytes, got ", kept.numel());
  renew(kOp, checked, kept, /*is_new=*/false);
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CUDA, m) {
  m.impl("keep_split", TORCH_BOX(&keep_split));
  m.impl("renew_split", TORCH_BOX(&renew_split));
}

}  // namespace
}  // namespace cutlass_fused
