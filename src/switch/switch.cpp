// The kernels of the switch in C++, over those in Python, which are over PyTorch's: a library of
// its own against the C++ API of one version of torch. It registers nothing by being loaded.
// cutlass_fused/matmul/_native.py calls the C functions at the end of this file.
#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "switch/serve.hpp"

namespace cutlass_fused {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using c10::SafeKernelFunction;
using torch::jit::Stack;

// What _state.py says, in all threads. Each is read once in a call: another thread may change it.
std::atomic<Word> current_word{Word::kOff};
std::atomic<bool> is_counting{false};

// What is served here, by the op's name; an op without a row is left to Python.
struct Row {
  std::string_view name;
  Serve serve;
};
constexpr Row kServed[] = {{"aten::mm", serve_mm},
                           {"aten::addmm", serve_addmm},
                           {"aten::addmm_", serve_addmm},
                           {"aten::bmm", serve_bmm},
                           {"aten::baddbmm", serve_baddbmm},
                           {"aten::baddbmm_", serve_baddbmm},
                           {"aten::_addmm_activation", serve_addmm_activation}};

Serve find_serve(std::string const& name) {
  for (Row const& row : kServed) {
    if (row.name == name) return row.serve;
  }
  return nullptr;
}

// The kernel of one op at one key. Boxed, as the ops that it calls are: so no argument is boxed
// twice, and one class serves the ops of every schema.
class Kernel final : public c10::OperatorKernel {
 public:
  // Over what PyTorch has now, or whoever put something over that.
  Kernel(OperatorHandle const& op, DispatchKey key, bool serves, int64_t short_k)
      : original_(op.getComputedKernelForDispatchKey(key)),
        serves_(serves),
        serve_(find_serve(op.schema().name())),
        arguments_(op.schema().arguments().size()),
        writes_(op.schema().overload_name() == "out"),
        in_place_(op.schema().name().back() == '_'),
        keeps_out_(key == DispatchKey::CPU),
        short_k_(short_k) {}

  // The kernel in Python, which is over the original now.
  void keep_python(OperatorHandle const& op, DispatchKey key) {
    python_.emplace(op.getComputedKernelForDispatchKey(key));
  }

  void operator()(OperatorHandle const& op, DispatchKeySet keys, Stack* stack) {
    if (Inside::is_inside()) return original_.callBoxed(op, keys, stack);
    Word const word = current_word.load(std::memory_order_relaxed);
    bool const counts = is_counting.load(std::memory_order_relaxed);
    if (!counts && (!serves_ || word == Word::kOff || !is_float32(stack))) {
      return original_.callBoxed(op, keys, stack);
    }
    std::optional<Inside> inside;
    if (keeps_out_) inside.emplace();
    switch (counts ? By::kPython : serve(word, stack)) {
      case By::kUs:
        return;
      case By::kPyTorch:
        return original_.callBoxed(op, keys, stack);
      case By::kPython:
        return python_->callBoxed(op, keys, stack);
    }
  }

 private:
  bool is_float32(Stack const* stack) const {
    return torch::jit::peek(*stack, 0, arguments_).toTensor().scalar_type() == at::kFloat;
  }

  // Replaces the arguments by the result where it returns kUs.
  By serve(Word word, Stack* stack) const {
    if (serve_ == nullptr) return By::kPython;
    at::Tensor y, out;
    c10::IValue const* const arguments = &torch::jit::peek(*stack, 0, arguments_);
    bool const writes = writes_ || in_place_;
    if (writes) out = (in_place_ ? arguments[0] : stack->back()).toTensor();
    Call const call{word, short_k_, arguments, writes ? &out : nullptr};
    By const by = serve_(call, y);
    if (by != By::kUs) return by;
    if (writes && !y.is_same(out)) y = out.copy_(y);
    torch::jit::drop(*stack, arguments_);
    torch::jit::push(*stack, std::move(y));
    return by;
  }

  SafeKernelFunction original_;
  std::optional<SafeKernelFunction> python_;
  bool serves_;  // else it is counted alone
  Serve serve_;
  size_t arguments_;
  bool writes_;     // to a last argument `out`
  bool in_place_;   // to its first argument
  bool keeps_out_;  // on a CPU the ops of this package call PyTorch's
  int64_t short_k_;
};

// A kernel before it is registered.
struct Cover {
  OperatorHandle op;
  DispatchKey key;
  std::unique_ptr<Kernel> kernel;
};

// "mm.out" -> {"aten::mm", "out"}
c10::OperatorName parse_name(std::string const& name) {
  size_t const dot = name.find('.');
  std::string const overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return {"aten::" + name.substr(0, dot), overload};
}

Cover* take(char const* name, char const* key, bool serves, int64_t short_k) {
  OperatorHandle const op = c10::Dispatcher::singleton().findOp(parse_name(name)).value();
  DispatchKey const at = c10::parseDispatchKey(key);
  return new Cover{op, at, std::make_unique<Kernel>(op, at, serves, short_k)};
}

// PyTorch warns of what is meant here.
struct Silence : c10::WarningHandler {
  void process(c10::Warning const&) override {}
};

void put_over(Cover& cover) {
  // Never destroyed: the kernels stay, also while the process ends.
  static auto* const registrations = new std::vector<c10::RegistrationHandleRAII>;
  Silence silence;
  c10::WarningUtils::WarningHandlerGuard const guard(&silence);
  cover.kernel->keep_python(cover.op, cover.key);
  registrations->push_back(c10::Dispatcher::singleton().registerImpl(
      cover.op.operator_name(), cover.key,
      c10::KernelFunction::makeFromBoxedFunctor(std::move(cover.kernel)), std::nullopt, nullptr,
      "cutlass_fused"));
}

}  // namespace
}  // namespace cutlass_fused

#define CUTLASS_FUSED_EXPORT extern "C" __attribute__((visibility("default")))

CUTLASS_FUSED_EXPORT char const* cutlass_fused_switch_torch_version() {
  return CUTLASS_FUSED_TORCH_VERSION;
}

// word: a Word. Beside a report all calls go to Python.
CUTLASS_FUSED_EXPORT void cutlass_fused_switch_set(int word, bool is_counting) {
  cutlass_fused::current_word = static_cast<cutlass_fused::Word>(word);
  cutlass_fused::is_counting = is_counting;
}

// cutlass_fused_is_by_cublas, of the library of the ops.
CUTLASS_FUSED_EXPORT void cutlass_fused_switch_ask(cutlass_fused::IsByCublas* is_by_cublas) {
  cutlass_fused::is_by_cublas = is_by_cublas;
}

// Remembers the kernel that an op has, before one in Python is put over it, which serves calls or
// only counts them. Null: there is none.
CUTLASS_FUSED_EXPORT void* cutlass_fused_switch_take(char const* name, char const* key, bool serves,
                                                     int64_t short_k) try {
  return cutlass_fused::take(name, key, serves, short_k);
} catch (std::exception const&) {
  return nullptr;
}

// Puts a kernel over the one in Python, and deletes what `take` gave. False: it did not.
CUTLASS_FUSED_EXPORT bool cutlass_fused_switch_put_over(void* taken) try {
  std::unique_ptr<cutlass_fused::Cover> const cover(static_cast<cutlass_fused::Cover*>(taken));
  cutlass_fused::put_over(*cover);
  return true;
} catch (std::exception const&) {
  return false;
}
