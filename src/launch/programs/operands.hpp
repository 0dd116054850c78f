// The operands of a program, and its results, as an op is given them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cutlass_fused/program/pointwise.hpp"
#include "checks/checks.hpp"

namespace cutlass_fused {

// The program of a text, which is read once. Throws where it is none, or takes another number of
// operands.
std::shared_ptr<program::Program const> read_program(char const* op, std::string const& text,
                                                     size_t operands);

// That a program of rows is one of so many columns.
void check_columns(char const* op, program::Program const& program, int64_t columns);

// Of an output in rows of `shape`, (..., N): one element for each of its groups of columns.
std::vector<int64_t> shape_of_output(program::Program const& program, size_t output,
                                     std::vector<int64_t> shape);

// What an operand is beside rows of `shape`, (..., N): by its own shape, as PyTorch broadcasts it.
// Throws where it is neither of (), (N,), (..., 1) and (..., N), not of a type that kernels read,
// or not on the device of `like`.
program::Element check_operand(char const* op, size_t index, Tensor const& operand,
                               std::vector<int64_t> const& shape, Tensor const& like);

struct ProgramInput {
  program::Element element;
  Tensor tensor;
};

// As kernels read it: (M, N) for a tile, (N,) contiguous for a row, a column with any stride, and
// any one element. What lies otherwise is copied.
Tensor make_readable(program::Element const& element, Tensor const& tensor, int64_t rows,
                     int64_t columns);
// Of what is readable: elements from the row of one element of the result to that of the next.
int64_t stride_of(program::Element const& element, Tensor const& tensor);

// The dtypes of so many results: `out` names them, one for all or with commas between; else
// `type`. Throws where one is none that kernels write.
std::vector<program::Type> check_outputs(char const* op, std::optional<std::string> const& out,
                                         program::Type type, size_t count);

// Of each result its dtype, and whether it is the sum over the rows: `sums` is empty where none is.
struct Results {
  std::vector<program::Type> types;
  std::vector<bool> sums = {};

  bool is_sum(size_t output) const { return output < sums.size() && sums[output]; }
};

// As check_outputs, and "sum:float32" is an output's sum over the rows, which a program of rows has
// none of.
Results check_results(char const* op, std::optional<std::string> const& out, program::Type type,
                      program::Program const& program);

// "float16,sum:float32": what check_results takes for `out`.
std::string name_results(Results const& results);

// An operand in words, "float16:row": its dtype, and scalar, row, column or tile.
program::Element check_element(char const* op, std::string const& text);
// A dtype by its name.
program::Type check_type(char const* op, std::string const& name);

program::Type to_type(DataType type);
DataType to_data_type(program::Type type);
ScalarType to_scalar_type(program::Type type);

}  // namespace cutlass_fused
