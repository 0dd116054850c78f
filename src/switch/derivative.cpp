#include "switch/derivative.hpp"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <unordered_map>

#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

// Of each kind. What is found again after that is read again.
constexpr size_t kMostKept = 4096;

template <class Value>
class Kept {
 public:
  // `make` is called without the lock: it may call Python, which may wait for another thread.
  template <class Make>
  Value find(std::string const& key, Make const& make) {
    {
      std::lock_guard const lock(mutex_);
      auto const found = values_.find(key);
      if (found != values_.end()) return found->second;
    }
    Value value = make();
    std::lock_guard const lock(mutex_);
    if (values_.size() >= kMostKept) values_.clear();
    return values_.emplace(key, std::move(value)).first->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Value> values_;
};

// Takes words apart that native.py has put together.
class Words {
 public:
  explicit Words(std::string_view words) : rest_(words) {}

  std::string_view next(char end = '|') {
    size_t const length = std::min(rest_.find(end), rest_.size());
    std::string_view const word = rest_.substr(0, length);
    rest_.remove_prefix(std::min(length + 1, rest_.size()));
    return word;
  }

  int64_t next_number(char end = '|') { return to_number(next(end)); }

  bool is_empty() const { return rest_.empty(); }

  std::vector<int64_t> next_numbers() {
    Words words(next());
    std::vector<int64_t> numbers;
    while (!words.is_empty()) numbers.push_back(words.next_number(','));
    return numbers;
  }

 private:
  static int64_t to_number(std::string_view word) {
    int64_t number = 0;
    auto const [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    TORCH_CHECK(error == std::errc() && end == word.data() + word.size(),
                "a program of a gradient must have a number here, got '", word, "'");
    return number;
  }

  std::string_view rest_;
};

Program make_program(std::string const& text, std::string const& out, std::string const& kinds) {
  constexpr std::string_view kSum = "sum:";
  std::vector<bool> sums;
  for (Words dtypes(out); !dtypes.is_empty();) {
    sums.push_back(dtypes.next(',').substr(0, kSum.size()) == kSum);
  }
  int64_t const outputs = static_cast<int64_t>(sums.size());
  std::string const key = text + "|" + kinds + "|" + out;
  return {c10::IValue(text), c10::IValue(out), outputs, key, std::move(sums)};
}

Program next_program(Words& words) {
  std::string const text(words.next()), out(words.next()), kinds(words.next());
  return make_program(text, out, kinds);
}

// Null where its text is empty.
DerivativeOf next_derivative(Words& words) {
  Derivative derivative{next_program(words), 0, {}, {}};
  derivative.first = words.next_number();
  derivative.reads = words.next_numbers();
  derivative.places = words.next_numbers();
  if (derivative.text.toStringRef().empty()) return nullptr;
  return std::make_shared<Derivative const>(std::move(derivative));
}

// Behind `word`, which begins a line of a program, up to the end of the next word; empty: there is
// no such line.
std::string_view find_behind(std::string_view text, std::string_view word) {
  size_t const line = text.find(word);
  if (line == text.npos) return {};
  std::string_view const rest = text.substr(line + word.size());
  return rest.substr(0, rest.find_first_of(" \n"));
}

// Of the first result of a program: "return v4:3 acc" is of groups of 3 columns.
int64_t find_width(std::string_view text) {
  std::string_view const result = find_behind(text, "\nreturn ");
  size_t const colon = result.find(':');
  if (colon == result.npos) return 1;
  int64_t const width = Words(result.substr(colon + 1)).next_number();
  bool const is_column = Words(find_behind(text, "\ncolumns ")).next_number() == width;
  return is_column ? 1 : width;
}

void append_bits(std::string& key, std::vector<bool> const& bits) {
  key += '|';
  for (bool bit : bits) key += bit ? '1' : '0';
}

bool are_within(std::vector<int64_t> const& numbers, int64_t first, int64_t end) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [&](int64_t number) { return first <= number && number < end; });
}

// `tensors`: how many it may read. Where the forward program has no second output, which is acc,
// the result is kept in its place, if it is read.
bool is_sound(Derivative const& derivative, RecordedCall const& call, int64_t operands,
              int64_t tensors) {
  bool const begins_with_acc = derivative.first == Derivative::kNothing;
  return (begins_with_acc || derivative.first == 0) &&
         (call.forward.outputs == 2 || !begins_with_acc || derivative.outputs == 0) &&
         are_within(derivative.reads, 0, tensors) &&
         static_cast<int64_t>(derivative.places.size()) == 1 + operands &&
         are_within(derivative.places, Derivative::kNothing, derivative.outputs);
}

}  // namespace

char const* name_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

bool Derivative::has_read(int64_t index) const {
  return std::find(reads.begin(), reads.end(), index) != reads.end();
}

Program read_program(std::string const& key) {
  Words words(key);
  std::string const text(words.next()), kinds(words.next()), out(words.next());
  return make_program(text, out, kinds);
}

std::shared_ptr<RecordedCall const> read_recorded(std::string const& words) {
  static auto* const kept = new Kept<std::shared_ptr<RecordedCall const>>;
  return kept->find(words, [&] {
    Words rest(words);
    RecordedCall call{next_program(rest), 1, rest.next_number(), nullptr, nullptr, {}};
    call.width = find_width(call.forward.text.toStringRef());
    call.gradient = next_derivative(rest);
    call.with_acc = next_derivative(rest);
    call.function = rest.next();
    TORCH_CHECK(call.gradient != nullptr, "a call with gradients must have a program of them");
    return std::make_shared<RecordedCall const>(std::move(call));
  });
}

void check_recorded(RecordedCall const& call, int64_t operands) {
  // Acc, the operands and the gradient of the result; `with_acc` reads that of acc, too.
  int64_t const tensors = 2 + operands;
  bool const is_right =
      (call.forward.outputs == 1 || call.forward.outputs == 2) &&
      Derivative::kNothing <= call.shift && call.shift < operands &&
      is_sound(*call.gradient, call, operands, tensors) &&
      (call.with_acc == nullptr || is_sound(*call.with_acc, call, operands, tensors + 1));
  TORCH_CHECK(is_right, "a call with gradients must name what there is of ", operands,
              " operands, got others");
}

DerivativeOf find_gradient(Program const& program, std::vector<bool> const& needed,
                           std::vector<bool> const& given,
                           std::vector<at::ScalarType> const& dtypes) {
  std::string key = program.key;
  append_bits(key, needed);
  append_bits(key, given);
  char before = '|';
  for (at::ScalarType dtype : dtypes) {
    key += before;
    key += name_of(dtype);
    before = ',';
  }
  static auto* const kept = new Kept<DerivativeOf>;
  return kept->find(key, [&] {
    // Its kernel is in Python (cutlass_fused/programs/native.py).
    static auto const op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow(OP_NAME("gradient_of_program"), "")
                               .typed<std::string(std::string)>();
    std::string const found = op.call(key);
    Words words(found);
    DerivativeOf const gradient = next_derivative(words);
    // Of a function whose first result is no matrix it would read acc itself.
    return gradient == nullptr || gradient->first == Derivative::kNothing ? nullptr : gradient;
  });
}

}  // namespace cutlass_fused
