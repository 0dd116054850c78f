// The products that the switch serves without Python: the plain cases of those that
// cutlass_fused/matmul/_served.py serves, to which all others are left.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "op_namespace.hpp"
#include "switch/by_pytorch.hpp"
#include "switch/views.hpp"

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

  // What it returns. A null tensor is one that is not given. Numbers stand behind the tensors.
  torch::jit::Stack run(Word word, std::initializer_list<at::Tensor const*> tensors,
                        std::initializer_list<double> numbers = {}) const {
    static c10::IValue const ieee("ieee"), tf32("tf32");
    torch::jit::Stack stack = defaults_;
    size_t i = 0;
    for (at::Tensor const* tensor : tensors) {
      if (tensor != nullptr) stack[i] = *tensor;
      ++i;
    }
    for (double number : numbers) stack[i++] = number;
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
  static Op const op(OP_NAME("linear"));
  return op;
}

inline Op const& linear_out() {
  static Op const op(OP_NAME("linear_out"));
  return op;
}

inline Op const& addmm() {
  static Op const op(OP_NAME("addmm"));
  return op;
}

inline Op const& addmm_out() {
  static Op const op(OP_NAME("addmm_out"));
  return op;
}

inline Op const& baddbmm() {
  static Op const op(OP_NAME("baddbmm"));
  return op;
}

inline Op const& baddbmm_out() {
  static Op const op(OP_NAME("baddbmm_out"));
  return op;
}

inline Op const& bmm() {
  static Op const op(OP_NAME("bmm"));
  return op;
}

// A batch of one as its matrix.
inline at::Tensor matrix_of(at::Tensor const& batch) {
  return view(batch, {batch.size(1), batch.size(2)}, {batch.stride(1), batch.stride(2)});
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
inline bool keeps_to(Word word) { return word == Word::kTf32 || !multiplies_in_tf32(); }

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

// Whether PyTorch computes it as well, and writes to nothing that it reads.
inline bool is_left(Call const& call, at::Tensor const& a, at::Tensor const& b,
                    at::Tensor const* bias) {
  if (!is_by_pytorch(a, b, call.word == Word::kTf32)) return false;
  for (at::Tensor const* read : {&a, &b, bias}) {
    if (call.out != nullptr && read != nullptr && read->is_alias_of(*call.out)) return false;
  }
  return true;
}

inline By multiply_if_ours(Call const& call, at::Tensor const& a, at::Tensor const& b,
                           at::Tensor const* bias, at::Tensor& y) {
  if (is_left(call, a, b, bias)) return By::kPyTorch;
  y = multiply(call, a, b, bias);
  return By::kUs;
}

inline By serve_mm(Call const& call, at::Tensor& y) {
  at::Tensor const &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor();
  By const by = choose(call, 2, a, b);
  return by == By::kUs ? multiply_if_ours(call, a, b, nullptr, y) : by;
}

// What addmm and baddbmm multiply c and the product by.
struct Scales {
  double beta, alpha;

  bool is_one() const { return beta == 1.0 && alpha == 1.0; }
  bool adds_nothing() const { return beta == 0.0 && alpha == 1.0; }

  // False where they are no numbers for fp32, or leave no product.
  static bool read(Call const& call, Scales& scales) {
    c10::Scalar const beta = call.arguments[3].toScalar(), alpha = call.arguments[4].toScalar();
    auto const is_number = [](c10::Scalar const& scalar) {
      return scalar.isFloatingPoint() || scalar.isIntegral(/*includeBool=*/true);
    };
    if (!is_number(beta) || !is_number(alpha)) return false;
    scales = {beta.toDouble(), alpha.toDouble()};
    return scales.alpha != 0.0;
  }
};

// Whether c broadcasts to the product of a (..., M, K) and b (..., K, N).
inline bool broadcasts(at::Tensor const& c, at::Tensor const& a, at::Tensor const& b) {
  if (!is_like(a, c) || c.dim() > a.dim()) return false;
  auto const fits = [&](int64_t from_the_right, int64_t size) {
    if (c.dim() < from_the_right) return true;
    int64_t const own = c.size(-from_the_right);
    return own == 1 || own == size;
  };
  return fits(1, b.size(-1)) && fits(2, a.size(-2)) && (a.dim() < 3 || fits(3, a.size(0)));
}

// The one row (N,) of which all rows of c are; else undefined.
inline at::Tensor find_row(at::Tensor const& c, int64_t n) {
  if (c.dim() == 0 || c.dim() > 2 || c.size(-1) != n) return {};
  if (c.dim() == 1) return c;
  return c.size(0) == 1 || c.stride(0) == 0 ? view(c, {n}, {c.stride(1)}) : at::Tensor();
}

// What `linear` adds, as _epilogue.py has it: a row, or nothing, which is undefined. No value: it
// does not compute the sum.
inline std::optional<at::Tensor> find_bias(at::Tensor const& c, int64_t n, Scales const& scales) {
  if (scales.adds_nothing()) return at::Tensor();
  at::Tensor row = scales.is_one() ? find_row(c, n) : at::Tensor();
  return row.defined() ? std::optional(std::move(row)) : std::nullopt;
}

inline at::Tensor const* pointer_to(at::Tensor const& bias) {
  return bias.defined() ? &bias : nullptr;
}

// beta * c + alpha * a (M, K) @ b (K, N), in the tensor of the caller if it can be: which may be c,
// or overlap it.
inline at::Tensor multiply_and_add(Call const& call, at::Tensor const& c, at::Tensor const& a,
                                   at::Tensor const& b, Scales const& scales) {
  at::Tensor const weight = transpose(b);
  if (call.out == nullptr || !is_apart(*call.out, {&a, &b})) {
    return std::move(addmm().run(call.word, {&c, &a, &weight}, {scales.beta, scales.alpha}).front())
        .toTensor();
  }
  addmm_out().run(call.word, {call.out, &c, &a, &weight}, {scales.beta, scales.alpha});
  return *call.out;
}

inline By serve_addmm(Call const& call, at::Tensor& y) {
  at::Tensor const& c = call.arguments[0].toTensor();
  at::Tensor const &a = call.arguments[1].toTensor(), &b = call.arguments[2].toTensor();
  By const by = choose(call, 2, a, b);
  if (by == By::kPython) return by;
  Scales scales;
  if (!broadcasts(c, a, b) || !Scales::read(call, scales)) return By::kPython;
  if (by != By::kUs) return by;
  if (auto const bias = find_bias(c, b.size(1), scales)) {
    return multiply_if_ours(call, a, b, pointer_to(*bias), y);
  }
  y = multiply_and_add(call, c, a, b, scales);
  return by;
}

// relu or gelu of what addmm gives; PyTorch's gelu is that of "tanh" here on a GPU, not on a CPU.
inline By serve_addmm_activation(Call const& call, at::Tensor& y) {
  By const by = serve_addmm(call, y);
  if (by != By::kUs) return by;
  bool const use_gelu = call.arguments[5].toBool();
  if (use_gelu) {
    at::gelu_(y, y.is_cuda() ? "tanh" : "none");
  } else {
    at::relu_(y);
  }
  return by;
}

// The bth matrix of a as (N, K) for all b.
inline at::Tensor transpose_all(at::Tensor const& b) {
  return view(b, {b.size(0), b.size(2), b.size(1)}, {b.stride(0), b.stride(2), b.stride(1)});
}

// Of batches that are there, and not of one matrix for all.
inline By choose_batches(Call const& call, at::Tensor const& a, at::Tensor const& b) {
  By const by = choose(call, 3, a, b);
  if (by == By::kPython) return by;
  int64_t const batches = a.size(0);
  bool const is_broadcast = batches > 1 && b.stride(0) == 0;
  return b.size(0) != batches || batches == 0 || is_broadcast ? By::kPython : by;
}

inline at::Tensor multiply_batches(Call const& call, at::Tensor const& a, at::Tensor const& b) {
  int64_t const m = a.size(1), n = b.size(2);
  if (a.size(0) == 1) {
    at::Tensor const x = matrix_of(a), weight = transpose(b);
    return view(linear().call(call.word, {&x, &weight}), {1, m, n}, {m * n, n, 1});
  }
  at::Tensor const weight = transpose_all(b);
  return bmm().call(call.word, {&a, &weight});
}

inline By multiply_batches_if_ours(Call const& call, at::Tensor const& a, at::Tensor const& b,
                                   at::Tensor& y) {
  if (is_left(call, a, b, nullptr)) return By::kPyTorch;
  y = multiply_batches(call, a, b);
  return By::kUs;
}

inline By serve_bmm(Call const& call, at::Tensor& y) {
  at::Tensor const &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor();
  By const by = choose_batches(call, a, b);
  return by == By::kUs ? multiply_batches_if_ours(call, a, b, y) : by;
}

// A batch of one is a product of matrices.
inline at::Tensor add_to_matrix(Call const& call, at::Tensor const& c, at::Tensor const& a,
                                at::Tensor const& b, Scales const& scales) {
  at::Tensor const of_c = c.dim() == 3 ? matrix_of(c) : c;
  at::Tensor const x = matrix_of(a), of_b = matrix_of(b);
  int64_t const m = a.size(1), n = b.size(2);
  Call of_matrix = call;
  at::Tensor out;
  if (call.out != nullptr) {
    out = matrix_of(*call.out);
    of_matrix.out = &out;
  }
  auto const bias = find_bias(of_c, n, scales);
  at::Tensor const y = bias ? multiply(of_matrix, x, of_b, pointer_to(*bias))
                            : multiply_and_add(of_matrix, of_c, x, of_b, scales);
  if (call.out != nullptr && y.is_same(out)) return *call.out;
  return view(y, {1, m, n}, {m * n, n, 1});
}

inline By serve_baddbmm(Call const& call, at::Tensor& y) {
  at::Tensor const& c = call.arguments[0].toTensor();
  at::Tensor const &a = call.arguments[1].toTensor(), &b = call.arguments[2].toTensor();
  By const by = choose_batches(call, a, b);
  if (by == By::kPython) return by;
  Scales scales;
  if (!broadcasts(c, a, b) || !Scales::read(call, scales)) return By::kPython;
  if (by != By::kUs) return by;
  if (scales.adds_nothing()) return multiply_batches_if_ours(call, a, b, y);
  if (a.size(0) == 1) {
    y = add_to_matrix(call, c, a, b, scales);
  } else {
    at::Tensor const weight = transpose_all(b);
    if (call.out != nullptr && is_apart(*call.out, {&a, &b})) {
      baddbmm_out().run(call.word, {call.out, &c, &a, &weight}, {scales.beta, scales.alpha});
      y = *call.out;
    } else {
      y = std::move(
              baddbmm().run(call.word, {&c, &a, &weight}, {scales.beta, scales.alpha}).front())
              .toTensor();
    }
  }
  return by;
}

}  // namespace cutlass_fused
