#include "checks/checks.hpp"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

namespace cutlass_fused {
namespace {

std::string device_string(Tensor const& tensor) {
  if (tensor.is_cpu()) return "cpu";
  if (tensor.is_cuda()) return "cuda:" + std::to_string(tensor.get_device_index());
  return "another kind of device";
}

// THE counterpart of TypeTraits: PyTorch's name of each element type.
template <DataType>
constexpr ScalarType kScalarTypeOf = ScalarType::Undefined;
template <>
constexpr ScalarType kScalarTypeOf<DataType::kFloat32> = ScalarType::Float;
template <>
constexpr ScalarType kScalarTypeOf<DataType::kFloat16> = ScalarType::Half;
template <>
constexpr ScalarType kScalarTypeOf<DataType::kBFloat16> = ScalarType::BFloat16;

std::optional<DataType> to_data_type(ScalarType type) {
  for (DataType candidate : kDataTypes) {
    if (to_scalar_type(candidate) == type) return candidate;
  }
  return std::nullopt;
}

void check_rank(char const* op, Tensor const& x) {
  STD_TORCH_CHECK(x.dim() >= 1, op, ": x must have at least 1 dimension, got shape ",
                  shape_string(x));
}

DataType check_x_dtype(char const* op, Tensor const& x) {
  std::optional<DataType> const type = to_data_type(x.scalar_type());
  STD_TORCH_CHECK(type.has_value(), op, ": x must be float16, bfloat16 or float32, got ",
                  dtype_string(x.scalar_type()));
  return *type;
}

std::string of_x_or_float32(ScalarType x_type) {
  std::string const of_x = dtype_string(x_type) + " (the dtype of x)";
  return x_type == ScalarType::Float ? of_x : of_x + " or float32";
}

DataType check_vector_dtype(char const* op, char const* name, Tensor const& vector,
                            Tensor const& x) {
  ScalarType const type = vector.scalar_type(), x_type = x.scalar_type();
  STD_TORCH_CHECK(type == x_type || type == ScalarType::Float, op, ": ", name, " must be ",
                  of_x_or_float32(x_type), ", got ", dtype_string(type));
  return *to_data_type(type);
}

// The stride between rows if all leading dimensions collapse into one of that stride, else -1.
int64_t row_stride(Tensor const& tensor) {
  int64_t const dims = tensor.dim(), k = tensor.size(dims - 1);
  if (k > 1 && tensor.stride(dims - 1) != 1) return -1;
  int64_t rows = 1, stride = -1;  // of the dimensions seen so far, from the innermost
  for (int64_t i = dims - 2; i >= 0; --i) {
    if (tensor.size(i) == 1) continue;
    if (stride == -1)
      stride = tensor.stride(i);
    else if (tensor.stride(i) != stride * rows)
      return -1;
    rows *= tensor.size(i);
  }
  if (stride == -1) return k;        // a single row
  return stride >= k ? stride : -1;  // rows that overlap (expanded ones too) are copied
}

}  // namespace

std::string shape_string(std::vector<int64_t> const& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string shape_string(Tensor const& tensor) {
  return shape_string(std::vector<int64_t>(tensor.sizes().begin(), tensor.sizes().end()));
}

std::string strides_string(Tensor const& tensor) {
  return shape_string(std::vector<int64_t>(tensor.strides().begin(), tensor.strides().end()));
}

std::string dtype_string(ScalarType type) {
  if (std::optional<DataType> const ours = to_data_type(type)) return name_of(*ours);
  switch (type) {
    case ScalarType::Double:
      return "float64";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Bool:
      return "bool";
    default:  // no name of a supported type
      return torch::headeronly::toString(type);
  }
}

void check_device(char const* op, char const* name, Tensor const& tensor, Tensor const& x) {
  STD_TORCH_CHECK(tensor.defined(), op, ": ", name, " must be a tensor, got None");
  STD_TORCH_CHECK(tensor.is_cuda() == x.is_cuda() && tensor.is_cpu() == x.is_cpu() &&
                      tensor.get_device_index() == x.get_device_index(),
                  op, ": ", name, " must be on the device of x, ", device_string(x), ", got ",
                  device_string(tensor));
}

ScalarType to_scalar_type(DataType type) {
  return for_type(type, [](auto row) {
    static_assert(kScalarTypeOf<row()> != ScalarType::Undefined);
    static_assert(kScalarTypeOf<row()> != ScalarType::Undefined);
    return kScalarTypeOf<row()>;
  });
}

DataType check_types(char const* op, Tensor const& x, Tensor const& weight) {
  DataType const type = check_x_dtype(op, x);
  STD_TORCH_CHECK(weight.scalar_type() == x.scalar_type(), op,
                  ": weight must have the dtype of x, ", dtype_string(x.scalar_type()), ", got ",
                  dtype_string(weight.scalar_type()));
  return type;
}

DataType check_batches(char const* op, Tensor const& x, Tensor const& weight) {
  auto const check = [&](char const* name, Tensor const& batch, char const* shape) {
    STD_TORCH_CHECK(batch.dim() == 3, op, ": ", name, " must have 3 dimensions ", shape,
                    ", got shape ", shape_string(batch));
  };
  check("x", x, "(B, M, K)");
  check("weight", weight, "(B, N, K)");
  DataType const type = check_types(op, x, weight);
  check_device(op, "weight", weight, x);
  STD_TORCH_CHECK(weight.size(0) == x.size(0) && weight.size(2) == x.size(2), op,
                  ": weight must have shape (B, N, K) = (", x.size(0), ", *, ", x.size(2),
                  "), got ", shape_string(weight));
  return type;
}

Matrices check_rows(char const* op, Tensor const& x) {
  check_rank(op, x);
  DataType const type = check_x_dtype(op, x);
  std::vector<int64_t> shape;
  int64_t m = 1;
  for (int64_t i = 0; i < x.dim(); ++i) {
    shape.push_back(x.size(i));
    if (i + 1 < x.dim()) m *= x.size(i);
  }
  return {x, x, m, shape.back(), shape.back(), row_stride(x), 0, type, shape, std::nullopt};
}

void check_two_dimensions(char const* op, Tensor const& x, char const* shape) {
  STD_TORCH_CHECK(x.dim() == 2, op, ": x must have 2 dimensions ", shape, ", got shape ",
                  shape_string(x));
}

Matrices check_weight(char const* op, Tensor const& weight) {
  STD_TORCH_CHECK(weight.dim() == 2, op, ": weight must have 2 dimensions (N, K), got shape ",
                  shape_string(weight));
  STD_TORCH_CHECK(weight.scalar_type() == ScalarType::Float, op, ": weight must be float32, got ",
                  dtype_string(weight.scalar_type()));
  int64_t const n = weight.size(0), k = weight.size(1), ld = row_stride(weight);
  return {weight, weight, 0, n, k, k, ld, DataType::kFloat32, {0, n}, std::nullopt};
}

namespace {

// Whether weight is float32 beside x of 16 bits.
bool check_weight_dtype(char const* op, Tensor const& x, DataType type, Tensor const& weight,
                        bool may_mix) {
  ScalarType const x_type = x.scalar_type(), weight_type = weight.scalar_type();
  if (!may_mix || size_of(type) != 2) {
    STD_TORCH_CHECK(weight_type == x_type, op, ": weight must have the dtype of x, ",
                    dtype_string(x_type), ", got ", dtype_string(weight_type));
    return false;
  }
  STD_TORCH_CHECK(weight_type == x_type || weight_type == ScalarType::Float, op,
                  ": weight must be ", of_x_or_float32(x_type), ", got ",
                  dtype_string(weight_type));
  return weight_type != x_type;
}

Matrices check_both(char const* op, Tensor const& x, Tensor const& weight,
                    std::optional<Tensor> const& weight_split, bool may_mix) {
  check_rank(op, x);
  STD_TORCH_CHECK(weight.dim() == 2, op, ": weight must have 2 dimensions (N, K), got shape ",
                  shape_string(weight));
  DataType const type = check_x_dtype(op, x);
  bool const is_mixed = check_weight_dtype(op, x, type, weight, may_mix);
  check_device(op, "weight", weight, x);
  int64_t const k = x.size(x.dim() - 1);
  STD_TORCH_CHECK(weight.size(1) == k, op, ": x must have ", weight.size(1), " columns, as weight ",
                  shape_string(weight), " has, got ", shape_string(x));

  std::vector<int64_t> y_shape;
  int64_t m = 1;
  for (int64_t i = 0; i + 1 < x.dim(); ++i) {
    y_shape.push_back(x.size(i));
    m *= x.size(i);
  }
  int64_t const n = weight.size(0);
  y_shape.push_back(n);

  if (weight_split.has_value()) {
    check_device(op, "weight_split", *weight_split, x);
    STD_TORCH_CHECK(weight_split->scalar_type() == ScalarType::Byte && weight_split->dim() == 1 &&
                        weight_split->is_contiguous(),
                    op, ": weight_split must be what split_weight returns, got ",
                    dtype_string(weight_split->scalar_type()), " of shape ",
                    shape_string(*weight_split));
  }
  return {x,       weight,       m,       n, k, row_stride(x), row_stride(weight), type,
          y_shape, weight_split, is_mixed};
}

}  // namespace

Matrices check_matrices(char const* op, Tensor const& x, Tensor const& weight,
                        std::optional<Tensor> const& weight_split) {
  return check_both(op, x, weight, weight_split, /*may_mix=*/false);
}

Matrices check_mixed_matrices(char const* op, Tensor const& x, Tensor const& weight,
                              std::optional<Tensor> const& weight_split) {
  return check_both(op, x, weight, weight_split, /*may_mix=*/true);
}

bool stands_for_split(Matrices const& matrices) {
  return matrices.weight_split.has_value() && matrices.weight.stride(0) == 0 &&
         matrices.weight.stride(1) == 0;
}

void copy_scattered_rows(Matrices& matrices, bool x, bool weight) {
  if (x && matrices.ldx == -1) {
    matrices.x = torch::stable::contiguous(matrices.x);
    matrices.ldx = matrices.k;
  }
  if (weight && matrices.ldw == -1) {
    matrices.weight = torch::stable::contiguous(matrices.weight);
    matrices.ldw = matrices.k;
  }
}

Vector check_vector(char const* op, char const* name, std::optional<Tensor> const& vector,
                    Matrices const& matrices, float absent) {
  if (!vector.has_value()) return Vector::constant(absent);
  check_device(op, name, *vector, matrices.x);
  DataType const type = check_vector_dtype(op, name, *vector, matrices.x);
  STD_TORCH_CHECK(vector->dim() == 1 && vector->size(0) == matrices.n, op, ": ", name,
                  " must have shape (N,) = (", matrices.n, ",), got ", shape_string(*vector));
  return {vector->const_data_ptr(), vector->stride(0), type, 0.0f};
}

Vector check_scale(char const* op, char const* name, std::optional<Tensor> const& scale,
                   Matrices const& matrices) {
  if (!scale.has_value()) return Vector::constant(1.0f);
  check_device(op, name, *scale, matrices.x);
  DataType const type = check_vector_dtype(op, name, *scale, matrices.x);
  bool const one = scale->numel() == 1 && scale->dim() <= 1;
  STD_TORCH_CHECK(one || (scale->dim() == 1 && scale->size(0) == matrices.n), op, ": ", name,
                  " must have one element or shape (N,) = (", matrices.n, ",), got ",
                  shape_string(*scale));
  return {scale->const_data_ptr(), one ? 0 : scale->stride(0), type, 0.0f};
}

Precision check_precision(char const* op, std::string const& precision) {
  std::string words;
  for (int i = 0; i < kPrecisions; ++i) {
    char const* const word = kPrecisionWords[i];
    if (precision == word) return static_cast<Precision>(i);
    words += (words.empty() ? "'" : " or '") + std::string(word) + "'";
  }
  STD_TORCH_CHECK(false, op, ": precision must be ", words, ", got '", precision, "'");
}

char const* precision_string(Precision precision) {
  return kPrecisionWords[static_cast<int>(precision)];
}

DataType check_out_dtype(char const* op, std::optional<ScalarType> out_dtype,
                         std::optional<std::string> const& out, Matrices const& matrices) {
  ScalarType const x_type = to_scalar_type(matrices.type);
  if (out.has_value()) {
    STD_TORCH_CHECK(!out_dtype.has_value(), op, ": out_dtype must be None beside out, got ",
                    dtype_string(*out_dtype));
    for (ScalarType const type : {x_type, ScalarType::Float}) {
      if (*out == dtype_string(type)) return *to_data_type(type);
    }
    STD_TORCH_CHECK(false, op, ": out_dtype must be ", of_x_or_float32(x_type), ", got ", *out);
  }
  if (!out_dtype.has_value()) return matrices.type;
  STD_TORCH_CHECK(*out_dtype == x_type || *out_dtype == ScalarType::Float, op,
                  ": out_dtype must be ", of_x_or_float32(x_type), ", got ",
                  dtype_string(*out_dtype));
  return *to_data_type(*out_dtype);
}

}  // namespace cutlass_fused
