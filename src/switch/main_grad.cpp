// Gradients of weights that are added to a buffer, where somebody has asked for it
// (cutlass_fused/weights/accumulated.py).
#include "op_namespace.hpp"
#include "switch/gradients.hpp"

#include <mutex>

namespace cutlass_fused {
namespace {

constexpr char kName[] = "main_grad";

Tensor find_buffer(AutogradContext* ctx, Tensor const& gradient) {
  auto const found = ctx->saved_data.find(kName);
  if (found == ctx->saved_data.end()) return {};
  TORCH_CHECK(is_plain(gradient),
              "accumulate_gradient: a gradient that is added to a buffer must be taken by a plain "
              "backward pass, got one that is differentiated, or mapped");
  return found->second.toTensor();
}

// Backward passes of two threads may add to one buffer, as they may to one `grad`.
std::mutex adding;

// buffer += a @ b
void add_product(Tensor buffer, Tensor const& a, Tensor const& b, std::string const& precision) {
  at::AutoDispatchBelowAutograd const guard;
  std::lock_guard const lock(adding);
  if (!buffer.is_cuda()) {
    buffer.add_(at::mm(a.to(buffer.scalar_type()), b.to(buffer.scalar_type())));
  } else if (a.scalar_type() == at::kFloat) {
    static NamedOp const op(OP_NAME("addmm_out"));
    static int const precision_at = op.index("precision");
    torch::jit::Stack stack = op.arguments();
    stack[0] = buffer;
    stack[1] = buffer;
    stack[2] = a;
    stack[3] = b.t();
    stack[precision_at] = to_argument(precision);
    op.run(std::move(stack));
  } else {
    at::addmm_out(buffer, buffer, a, b, at::kFloat);
  }
}

}  // namespace

void keep_main_grad(AutogradContext* ctx, OptionalTensor const& main_grad) {
  // Not as a saved variable: it is to be written to.
  if (main_grad) ctx->saved_data[kName] = *main_grad;
}

Tensor differentiate_weight(AutogradContext* ctx, Tensor const& rows, Tensor const& x,
                            std::string const& precision) {
  Tensor const buffer = find_buffer(ctx, rows);
  if (!buffer.defined()) {
    auto const along_n = ctx->saved_data.find(kAlongN);
    bool const lies_along_n = along_n != ctx->saved_data.end() && along_n->second.toBool();
    return lies_along_n ? multiply(x.t(), rows, precision).t() : multiply(rows.t(), x, precision);
  }
  if (rows.size(0) > 0) add_product(buffer, rows.t(), x, precision);
  return {};
}

Tensor give_or_add(AutogradContext* ctx, Tensor const& grad_weight, at::ScalarType type) {
  Tensor buffer = find_buffer(ctx, grad_weight);
  if (!buffer.defined()) return grad_weight.to(type);
  std::lock_guard const lock(adding);
  buffer.add_(grad_weight);
  return {};
}

}  // namespace cutlass_fused
