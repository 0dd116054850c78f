// One form of message for bad input: "<op>: <what> must <be this>, got <that>". Everything is
// checked before anything is allocated or launched.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "cutlass_fused/common/math.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// x as (M, K) and weight as (N, K), with the strides of their rows; -1 where the elements of a row,
// or the rows, do not lie as the kernels read them.
struct Matrices {
  Tensor x, weight;
  int64_t m, n, k, ldx, ldw;
  DataType type;                       // of x
  std::vector<int64_t> y_shape;        // x's leading dimensions, then N
  std::optional<Tensor> weight_split;  // what split_weight made of weight, if anything
  bool is_mixed = false;               // weight is float32, and x of 16 bits

  // Of what is multiplied: beside a weight of float32 x is widened to it.
  DataType multiplied_type() const { return is_mixed ? DataType::kFloat32 : type; }
};

// Throws unless x is (..., K) and weight (N, K), of one supported dtype and on one CUDA device, and
// weight_split bytes there.
Matrices check_matrices(char const* op, Tensor const& x, Tensor const& weight,
                        std::optional<Tensor> const& weight_split = std::nullopt);

// The same, but beside x of 16 bits weight may also be float32: for ops that hand the matrices to
// run_linear, which alone knows of it.
Matrices check_mixed_matrices(char const* op, Tensor const& x, Tensor const& weight,
                              std::optional<Tensor> const& weight_split = std::nullopt);

// The element type of x and weight. Throws unless they are of one that is supported.
DataType check_types(char const* op, Tensor const& x, Tensor const& weight);

// The element type of batches x (B, M, K) and weight (B, N, K). Throws unless they are that.
DataType check_batches(char const* op, Tensor const& x, Tensor const& weight);

// weight alone, as rows of K elements: throws unless it is (N, K), float32 and on a CUDA device.
Matrices check_weight(char const* op, Tensor const& weight);

// x alone, as rows of N = K elements: throws unless it has a dimension and a supported dtype, and
// is on a CUDA device.
Matrices check_rows(char const* op, Tensor const& x);

// Throws unless x is (M, N), or what `shape` says.
void check_two_dimensions(char const* op, Tensor const& x, char const* shape);

// Whether weight is not there any more: all its strides are 0, and there is what split_weight made
// of it when it was.
bool stands_for_split(Matrices const& matrices);

// Replaces what has a stride of -1 by a contiguous copy. To be called when all checks have passed.
void copy_scattered_rows(Matrices& matrices, bool x = true, bool weight = true);

// A vector operand (N,), or absent: then `absent` everywhere. Throws unless it has N elements in
// one dimension, x's dtype or float32, and x's device.
Vector check_vector(char const* op, char const* name, std::optional<Tensor> const& vector,
                    Matrices const& matrices, float absent);

// A vector as above, or one element, which is broadcast and stays on the GPU.
Vector check_scale(char const* op, char const* name, std::optional<Tensor> const& scale,
                   Matrices const& matrices);

// Throws unless the tensor is on the device of x.
void check_device(char const* op, char const* name, Tensor const& tensor, Tensor const& x);

// "(2, 3)" and "float32", as PyTorch prints them.
std::string shape_string(std::vector<int64_t> const& shape);
std::string shape_string(Tensor const& tensor);
std::string strides_string(Tensor const& tensor);
std::string dtype_string(ScalarType type);

Precision check_precision(char const* op, std::string const& precision);
char const* precision_string(Precision precision);

// The element type of y: `out_dtype`, or the dtype that `out` names, or x's. Throws unless it is
// x's dtype or float32. (A ScalarType in an AOTInductor package of torch 2.11 arrives as another
// one; a name arrives.)
DataType check_out_dtype(char const* op, std::optional<ScalarType> out_dtype,
                         std::optional<std::string> const& out, Matrices const& matrices);

ScalarType to_scalar_type(DataType type);

}  // namespace cutlass_fused
