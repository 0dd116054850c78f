// The products that the switch serves without Python: the plain cases of those that
// cutlass_fused/matmul/_served.py serves, to which all others are left.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace cutlass_fused {

// The setting of `cutlass_fused.fp32_matmul`.
enum class Word { kOff, kIeee, kTf32 };

// What an op of PyTorch is called with.
struct Call {
  Word word;
  int64_t short_k;  // _left.py's: the K up to which PyTorch's sums are taken, if they are as exact
  c10::IValue const* arguments;
  at::Tensor const* out;  // where the result goes, or null
};

// Who computes the result of a call.
enum class By { kUs, kPyTorch, kPython };

// An op of this package, called with the tensors that it takes first and a precision.
class Op {
 public:
  explicit Op(char const* name)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "")),
        precision_(*op_.schema().argumentIndexWithName("precision")) {
    for (c10::Argument const& argument : op_.schema().arguments()) {
      defaults_.push_back(argument.default_value().value_or(c10::IValue()));
    }
  }

  at::Tensor call(Word word, std::initializer_list<at::Tensor const*> tensors) const {
    return std::move(run(word, tensors).front()).toTensor();
  }

  // What it returns. A null tensor is one that is not given.
  torch::jit::Stack run(Word word, std::initializer_list<at::Tensor const*> tensors) const {
    static c10::IValue const ieee("ieee"), tf32("tf32");
    torch::jit::Stack stack = defaults_;
    size_t i = 0;
    for (at::Tensor const* tensor : tensors) {
      if (tensor != nullptr) stack[i] = *tensor;
      ++i;
    }
    stack[precision_] = word == Word::kTf32 ? tf32 : ieee;
    op_.callBoxed(&stack);
    return stack;
  }

 private:
  c10::OperatorHandle op_;
  int precision_;
  std::vector<c10::IValue> defaults_;
};

inline Op const& linear() {
  static Op const op("cutlass_fused::linear");
  return op;
}

inline Op const& linear_out() {
  static Op const op("cutlass_fused::linear_out");
  return op;
}

inline Op const& bmm() {
  static Op const op("cutlass_fused::bmm");
  return op;
}

// The memory of a tensor in another shape. PyTorch's own views take several calls of its
// dispatcher, of which the last does this.
inline at::Tensor view(at::Tensor const& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::Tensor viewed = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  c10::TensorImpl* const impl = viewed.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(sizes, strides);
  return viewed;
}

// b (K, N), or one matrix of b (1, K, N), as `linear` takes it: (N, K).
inline at::Tensor transpose(at::Tensor const& b) {
  int64_t const rows = b.dim() - 2, columns = b.dim() - 1;
  return view(b, {b.size(columns), b.size(rows)}, {b.stride(columns), b.stride(rows)});
}

inline bool is_like(at::Tensor const& a, at::Tensor const& b) {
  return a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat && b.device() == a.device();
}

// Whether a (..., M, K) @ b (..., K, N) has the shape of `out`.
inline bool fits(at::Tensor const& out, at::Tensor const& a, at::Tensor const& b) {
  return out.dim() == a.dim() && out.size(0) == a.size(0) && out.size(-2) == a.size(-2) &&
         out.size(-1) == b.size(-1);
}

// Whether PyTorch's products are as exact as the word promises, on any GPU.
inline bool keeps_to(Word word) {
  return word == Word::kTf32 ||
         at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) !=
             at::Float32Precision::TF32;
}

// Of operands that have `dim` dimensions, if they are plain.
inline By choose(Call const& call, int64_t dim, at::Tensor const& a, at::Tensor const& b) {
  if (a.dim() != dim || b.dim() != dim || !is_like(a, b)) return By::kPython;
  if (call.out != nullptr && !(is_like(a, *call.out) && fits(*call.out, a, b))) return By::kPython;
  int64_t const m = a.size(-2), k = a.size(-1), n = b.size(-1);
  if (b.size(-2) != k || m == 0 || n == 0 || k == 0) return By::kPython;
  return k <= call.short_k && keeps_to(call.word) ? By::kPyTorch : By::kUs;
}

// Whether `linear_out` can write there: PyTorch's result lies in rows, and nothing that is read
// does.
inline bool is_apart(at::Tensor const& out, std::initializer_list<at::Tensor const*> read) {
  for (at::Tensor const* tensor : read) {
    if (tensor != nullptr && tensor->is_alias_of(out)) return false;
  }
  constexpr uintptr_t kPiece = 16;  // of another address kernels are others, with other bits
  return out.is_contiguous() && reinterpret_cast<uintptr_t>(out.const_data_ptr()) % kPiece == 0;
}

// a (M, K) @ b (K, N) + bias, in the tensor of the caller if it can be.
inline at::Tensor multiply(Call const& call, at::Tensor const& a, at::Tensor const& b,
                           at::Tensor const* bias) {
  at::Tensor const weight = transpose(b);
  if (call.out == nullptr || !is_apart(*call.out, {&a, &b, bias})) {
    return std::move(linear().run(call.word, {&a, &weight, bias}).front()).toTensor();
  }
  linear_out().run(call.word, {call.out, &a, &weight, bias});
  return *call.out;
}

// Writes y where it returns kUs: it may be the tensor of the caller.
using Serve = By (*)(Call const& call, at::Tensor& y);

inline By serve_mm(Call const& call, at::Tensor& y) {
  at::Tensor const &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor();
  By const by = choose(call, 2, a, b);
  if (by == By::kUs) y = multiply(call, a, b, nullptr);
  return by;
}

inline bool is_one(c10::IValue const& number) { return number.toScalar().equal(1); }

// With a bias (N,) and nothing to multiply it by.
inline By serve_addmm(Call const& call, at::Tensor& y) {
  at::Tensor const& c = call.arguments[0].toTensor();
  at::Tensor const &a = call.arguments[1].toTensor(), &b = call.arguments[2].toTensor();
  bool const is_bias = c.dim() == 1 && b.dim() == 2 && c.size(0) == b.size(1) && is_like(a, c);
  bool const is_scaled = !is_one(call.arguments[3]) || !is_one(call.arguments[4]);
  if (!is_bias || is_scaled) return By::kPython;
  By const by = choose(call, 2, a, b);
  if (by == By::kUs) y = multiply(call, a, b, &c);
  return by;
}

inline By serve_bmm(Call const& call, at::Tensor& y) {
  at::Tensor const &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor();
  By const by = choose(call, 3, a, b);
  if (by == By::kPython) return by;
  int64_t const batches = a.size(0), m = a.size(1), k = a.size(2), n = b.size(2);
  bool const is_broadcast = batches > 1 && b.stride(0) == 0;
  if (b.size(0) != batches || batches == 0 || is_broadcast) return By::kPython;
  if (by != By::kUs) return by;
  if (batches == 1) {
    at::Tensor const x = view(a, {m, k}, {a.stride(1), a.stride(2)}), weight = transpose(b);
    y = view(linear().call(call.word, {&x, &weight}), {1, m, n}, {m * n, n, 1});
  } else {
    at::Tensor const weight = view(b, {batches, n, k}, {b.stride(0), b.stride(2), b.stride(1)});
    y = bmm().call(call.word, {&a, &weight});
  }
  return by;
}

}  // namespace cutlass_fused
