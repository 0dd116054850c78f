// Programs and their gradients, as cutlass_fused/programs/recorded.py has them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "switch/gradients.hpp"

namespace cutlass_fused {

// As ops take a dtype.
char const* name_of(at::ScalarType type);

// A program and the dtypes of its outputs, as ops take them.
struct Program {
  c10::IValue text, out;
  int64_t outputs;  // 0: it need not run
  std::string key;  // its text, the kinds of its operands and `out`, which decide its gradient
  std::vector<bool> sums;  // of each output, whether it is the sum over the rows
};

// Of a gradient: recorded.py's Derivative.
struct Derivative : Program {
  static constexpr int64_t kNothing = -1;

  int64_t first;
  std::vector<int64_t> reads, places;

  bool has_read(int64_t index) const;
};
using DerivativeOf = std::shared_ptr<Derivative const>;

// What a call with gradients runs: recorded.py's Recorded, of a function with one result.
struct RecordedCall {
  // With acc behind the result where the gradient reads it, or the result is read in its place.
  Program forward;
  int64_t
      width;  // columns of a group that the result has one element of; 1: it is whole, or a column
  int64_t shift;
  DerivativeOf gradient;
  DerivativeOf with_acc;  // where acc has a gradient of its own; null: that is added behind it
  // The function, for PyTorch's ops, where the gradient's program has no derivative of its own:
  // traced.py's write_request. Empty: it has.
  std::string function;

  bool is_first_order() const { return !function.empty(); }
};

// Of the key of a program.
Program read_program(std::string const& key);

// Of what native.py wrote; the same for all calls with the same words.
std::shared_ptr<RecordedCall const> read_recorded(std::string const& words);

// That a call of so many operands finds what it names: words may come from a file.
void check_recorded(RecordedCall const& call, int64_t operands);

// The gradient of a program in those of acc and its operands that `needed` has, for the results
// that are `given`; null: it is no program.
DerivativeOf find_gradient(Program const& program, std::vector<bool> const& needed,
                           std::vector<bool> const& given,
                           std::vector<at::ScalarType> const& dtypes);

}  // namespace cutlass_fused
