#include "switch/shared_split.hpp"

#include <array>
#include <mutex>

#include "cutlass_fused/gemm/renew_rows.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

// What shares_split said last: a model asks about the same few layers in every step.
struct Answer {
  std::array<int64_t, 5> layer = {-1, 0, 0, 0, 0};  // GPU, M, N, K, and the bits of the rest
  bool shares = false;
};

bool shares_split(int64_t device, int64_t m, int64_t n, int64_t k, std::string const& precision,
                  bool batch_norm) {
  static thread_local std::array<Answer, 256> answers;
  int64_t const rest = (precision == "tf32" ? 1 : 0) | (batch_norm ? 2 : 0);
  std::array<int64_t, 5> const layer = {device, m, n, k, rest};
  uint64_t hash = 0;
  for (int64_t word : layer) hash = (hash ^ uint64_t(word)) * 0x9e3779b97f4a7c15u;
  Answer& answer = answers[hash >> 56];
  if (answer.layer != layer) {
    static NamedOp const op(OP_NAME("shares_split"));
    answer = {layer, op.run({device, m, n, k, precision, batch_norm}).front().toBool()};
  }
  return answer.shares;
}

// Its parts, of what the weight holds now. Writes are not counted: graphs of earlier steps may have
// saved the parts, and are as right with those of now.
Tensor renew(Tensor kept, Tensor const& weight, std::string const& precision) {
  static NamedOp const keep(OP_NAME("keep_split")), renew(OP_NAME("renew_split"));
  static std::mutex lock;  // threads may share a weight, and Python's lock is not held
  std::lock_guard<std::mutex> const guard(lock);
  at::AutoDispatchBelowADInplaceOrView const uncounted;
  if (kept.numel() == 0) {
    kept.set_(keep.call({weight, precision}));
  } else {
    renew.run({kept, weight, precision});
  }
  return kept.slice(/*dim=*/0, MarkedSplit::marks_bytes(weight.size(0)));
}

}  // namespace

Tensor make_shared_split(Tensor const& x, Tensor const& weight, std::string const& precision,
                         bool batch_norm, OptionalTensor const& kept) {
  bool const is_read_twice = x.requires_grad() && weight.is_cuda() &&
                             weight.scalar_type() == at::kFloat && x.scalar_type() == at::kFloat;
  if (!is_read_twice || weight.dim() != 2 || x.numel() == 0) return {};
  int64_t const n = weight.size(0), k = weight.size(1);
  // Only of a weight in rows that do not overlap are the parts those that are read along its
  // columns, too.
  if (weight.stride(1) != 1 || weight.stride(0) < k) return {};
  if (k == 0 || x.size(-1) != k) return {};  // the op says what is wrong
  if (!shares_split(weight.device().index(), x.numel() / k, n, k, precision, batch_norm)) return {};
  if (kept) return renew(*kept, weight, precision);
  static NamedOp const op(OP_NAME("split_weight"));
  return op.call({weight, precision});
}

}  // namespace cutlass_fused
