#include "launch/programs/operands.hpp"

#include <algorithm>

#include "cutlass_fused/program/parse.hpp"
#include "link/once.hpp"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

namespace cutlass_fused {
namespace {

using program::Element;
using program::Kind;
using program::Type;

struct Read {
  std::shared_ptr<program::Program const> program;
  std::string error;
};

Read read(std::string const& text) {
  try {
    return {std::make_shared<program::Program const>(program::parse(text)), ""};
  } catch (program::Malformed const& malformed) {
    return {nullptr, malformed.what()};
  }
}

std::optional<Type> find_type(ScalarType type) {
  if (type == ScalarType::Float) return Type::kFloat32;
  if (type == ScalarType::Half) return Type::kFloat16;
  if (type == ScalarType::BFloat16) return Type::kBFloat16;
  return {};
}

std::optional<Type> find_type(std::string_view name) {
  if (name == "float32") return Type::kFloat32;
  if (name == "float16") return Type::kFloat16;
  if (name == "bfloat16") return Type::kBFloat16;
  return {};
}

std::vector<int64_t> shape_of(Tensor const& tensor) {
  auto const sizes = tensor.sizes();
  return {sizes.begin(), sizes.end()};
}

bool are_ones(std::vector<int64_t> const& shape, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (shape[i] != 1) return false;
  }
  return true;
}

// The rows of an operand are those of `full` but for their length.
bool has_rows(std::vector<int64_t> shape, std::vector<int64_t> const& full) {
  if (shape.size() != full.size()) return false;
  shape.back() = full.back();
  return shape == full;
}

std::optional<Kind> find_kind(std::vector<int64_t> const& shape, std::vector<int64_t> const& full) {
  if (shape.size() > full.size()) return {};
  if (are_ones(shape, shape.size())) return Kind::kScalar;
  if (shape.back() == full.back() && are_ones(shape, shape.size() - 1)) return Kind::kRow;
  if (!has_rows(shape, full)) return {};
  if (shape.back() == 1) return Kind::kColumn;
  return shape.back() == full.back() ? std::optional<Kind>(Kind::kTile) : std::nullopt;
}

std::string describe_shapes(std::vector<int64_t> full) {
  std::string const row = "(" + std::to_string(full.back()) + ",), ";
  std::string const tile = shape_string(full);
  full.back() = 1;
  return "(), " + row + shape_string(full) + " or " + tile;
}

// Calls take(part) for each part between commas.
template <class Take>
void split(std::string_view text, Take const& take) {
  for (;;) {
    size_t const comma = text.find(',');
    take(text.substr(0, comma));
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

constexpr std::string_view kSum = "sum:";

Results read_results(char const* op, std::optional<std::string> const& out, Type type, size_t count,
                     bool may_sum) {
  if (!out.has_value()) return {std::vector<Type>(count, type)};
  Results results;
  split(*out, [&](std::string_view name) {
    bool const is_sum = may_sum && name.substr(0, kSum.size()) == kSum;
    auto const found = find_type(is_sum ? name.substr(kSum.size()) : name);
    STD_TORCH_CHECK(found.has_value(), op, ": out must name float16, bfloat16 or float32",
                    may_sum ? ", or one of them behind sum:" : "", ", got ", *out);
    results.types.push_back(*found);
    results.sums.push_back(is_sum);
  });
  if (results.types.size() == 1) {
    results.types.resize(count, results.types[0]);
    results.sums.resize(count, results.sums[0]);
  }
  STD_TORCH_CHECK(results.types.size() == count, op, ": out must name one dtype or ", count,
                  ", got ", *out);
  return results;
}

}  // namespace

std::shared_ptr<program::Program const> read_program(char const* op, std::string const& text,
                                                     size_t operands) {
  static link::Once<Read> once;
  Read const found = once.get(text, [&] { return read(text); });
  STD_TORCH_CHECK(found.program != nullptr, op, ": program: ", found.error);
  STD_TORCH_CHECK(static_cast<size_t>(found.program->operands) == operands, op, ": there must be ",
                  found.program->operands, " operands, as the program says, got ", operands);
  return found.program;
}

void check_columns(char const* op, program::Program const& program, int64_t columns) {
  STD_TORCH_CHECK(program.columns == 0 || program.columns == columns, op, ": N must be ",
                  program.columns, ", as the program says, got ", columns);
}

std::vector<int64_t> shape_of_output(program::Program const& program, size_t output,
                                     std::vector<int64_t> shape) {
  shape.back() /= program.widths[output];
  return shape;
}

Element check_operand(char const* op, size_t index, Tensor const& operand,
                      std::vector<int64_t> const& shape, Tensor const& like) {
  auto const name = [&] { return "operands[" + std::to_string(index) + "]"; };
  if (operand.device() != like.device()) check_device(op, name().c_str(), operand, like);
  auto const type = find_type(operand.scalar_type());
  STD_TORCH_CHECK(type.has_value(), op, ": ", name(), " must be float16, bfloat16 or float32, got ",
                  dtype_string(operand.scalar_type()));
  std::vector<int64_t> const own = shape_of(operand);
  auto const kind = find_kind(own, shape);
  STD_TORCH_CHECK(kind.has_value(), op, ": ", name(), " must have shape ", describe_shapes(shape),
                  ", got ", shape_string(own));
  return {*type, *kind};
}

std::vector<Type> check_outputs(char const* op, std::optional<std::string> const& out, Type type,
                                size_t count) {
  return read_results(op, out, type, count, /*may_sum=*/false).types;
}

Results check_results(char const* op, std::optional<std::string> const& out, Type type,
                      program::Program const& program) {
  Results results = read_results(op, out, type, program.outputs.size(), /*may_sum=*/true);
  bool const has_sums =
      std::find(results.sums.begin(), results.sums.end(), true) != results.sums.end();
  if (!has_sums) results.sums.clear();
  STD_TORCH_CHECK(!has_sums || !program.is_of_rows(), op,
                  ": out must name no sum of a program that adds or compares along rows, got ",
                  *out);
  return results;
}

std::string name_results(Results const& results) {
  std::string names;
  for (size_t i = 0; i < results.types.size(); ++i) {
    names += i > 0 ? "," : "";
    names += results.is_sum(i) ? kSum : "";
    names += dtype_string(to_scalar_type(results.types[i]));
  }
  return names;
}

Type check_type(char const* op, std::string const& name) {
  auto const type = find_type(name);
  STD_TORCH_CHECK(type.has_value(), op, ": a dtype must be float16, bfloat16 or float32, got ",
                  name);
  return *type;
}

Element check_element(char const* op, std::string const& text) {
  size_t const colon = text.find(':');
  std::string const kind = colon == std::string::npos ? "" : text.substr(colon + 1);
  constexpr Kind kKinds[] = {Kind::kScalar, Kind::kRow, Kind::kColumn, Kind::kTile};
  constexpr char const* kWords[] = {"scalar", "row", "column", "tile"};
  for (int i = 0; i < 4; ++i) {
    if (kind == kWords[i]) return {check_type(op, text.substr(0, colon)), kKinds[i]};
  }
  STD_TORCH_CHECK(false, op,
                  ": an operand must be a dtype, a colon and scalar, row, column or "
                  "tile, got ",
                  text);
}

namespace {

// Kernels read a column with any stride, as a column of a matrix has.
bool has_stride(Tensor const& column) {
  return column.dim() == 1 || (column.dim() == 2 && column.size(1) == 1);
}

}  // namespace

// PyTorch's ops are called only where they have something to do.
Tensor make_readable(Element const& element, Tensor const& tensor, int64_t rows, int64_t columns) {
  bool const is_vector = element.kind == Kind::kRow || element.kind == Kind::kColumn;
  if (is_vector && tensor.is_contiguous()) return tensor;
  if (element.kind == Kind::kColumn && has_stride(tensor)) return tensor;
  switch (element.kind) {
    case Kind::kScalar:
      return tensor;
    case Kind::kRow:
      return torch::stable::reshape(torch::stable::contiguous(tensor), {columns});
    case Kind::kColumn:
      return torch::stable::reshape(torch::stable::contiguous(tensor), {rows});
    case Kind::kTile:
      break;
  }
  if (tensor.dim() == 2 && (tensor.stride(1) == 1 || columns == 1)) return tensor;
  return torch::stable::reshape(torch::stable::contiguous(tensor), {rows, columns});
}

int64_t stride_of(Element const& element, Tensor const& tensor) {
  switch (element.kind) {
    case Kind::kTile:
      return tensor.stride(0);
    case Kind::kColumn:
      return has_stride(tensor) ? tensor.stride(0) : 1;
    case Kind::kRow:
    case Kind::kScalar:
      break;
  }
  return 0;
}

Type to_type(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return Type::kFloat32;
    case DataType::kFloat16:
      return Type::kFloat16;
    case DataType::kBFloat16:
      break;
  }
  return Type::kBFloat16;
}

DataType to_data_type(Type type) {
  switch (type) {
    case Type::kFloat32:
      return DataType::kFloat32;
    case Type::kFloat16:
      return DataType::kFloat16;
    case Type::kBFloat16:
      break;
  }
  return DataType::kBFloat16;
}

ScalarType to_scalar_type(Type type) {
  switch (type) {
    case Type::kFloat32:
      return ScalarType::Float;
    case Type::kFloat16:
      return ScalarType::Half;
    case Type::kBFloat16:
      break;
  }
  return ScalarType::BFloat16;
}

}  // namespace cutlass_fused
