#include "launch/cublas/multiply.hpp"

#include <dlfcn.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <optional>

#include "checks/status.hpp"
#include "launch/cublas/handles.hpp"

namespace cutlass_fused {
namespace {

// What is used of cublas_api.h and, for the types, of library_types.h: types as C passes them, and
// the values of constants, which cuBLAS keeps from version to version. A build needs no cuBLAS.
using Handle = void*;
constexpr int kSuccess = 0;                          // CUBLAS_STATUS_SUCCESS
constexpr int kAsItLies = 0, kTransposed = 1;        // CUBLAS_OP_N, CUBLAS_OP_T
constexpr int kFloat = 0, kHalf = 2, kBFloat = 14;   // CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
constexpr int kComputeFp32 = 68, kComputeTf32 = 77;  // CUBLAS_COMPUTE_32F, ..._32F_FAST_TF32
constexpr int kAnyAlgorithm = -1;                    // CUBLAS_GEMM_DEFAULT
constexpr int kDefaultMath = 0;                      // CUBLAS_DEFAULT_MATH
constexpr int kFullSums = 16;     // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
constexpr int kHostPointers = 0;  // CUBLAS_POINTER_MODE_HOST

using Multiply = int(Handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, void const* alpha,
                     void const* a, int a_type, int64_t lda, void const* b, int b_type, int64_t ldb,
                     void const* beta, void* c, int c_type, int64_t ldc, int compute,
                     int algorithm);
using MultiplyBatch = int(Handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k,
                          void const* alpha, void const* a, int a_type, int64_t lda,
                          long long a_stride, void const* b, int b_type, int64_t ldb,
                          long long b_stride, void const* beta, void* c, int c_type, int64_t ldc,
                          long long c_stride, int64_t batch, int compute, int algorithm);
using GetMode = int(Handle, int* mode);
using SetMode = int(Handle, int mode);

struct Cublas {
  Multiply* multiply = nullptr;
  MultiplyBatch* multiply_batch = nullptr;
  GetMode *get_math = nullptr, *get_pointers = nullptr;
  SetMode *set_math = nullptr, *set_pointers = nullptr;
  bool found = false;
};

template <class Function>
bool find_function(void* library, char const* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

// Looks among what libtorch_cuda depends on: a process may have loaded another cuBLAS too, which
// knows nothing of PyTorch's handles. The functions of 64-bit sizes are those of CUDA 12 and newer.
Cublas find_cublas() {
  Cublas cublas;
  void* const torch = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  cublas.found = torch != nullptr && find_function(torch, "cublasGemmEx_64", cublas.multiply) &&
                 find_function(torch, "cublasGemmStridedBatchedEx_64", cublas.multiply_batch) &&
                 find_function(torch, "cublasGetMathMode", cublas.get_math) &&
                 find_function(torch, "cublasSetMathMode", cublas.set_math) &&
                 find_function(torch, "cublasGetPointerMode_v2", cublas.get_pointers) &&
                 find_function(torch, "cublasSetPointerMode_v2", cublas.set_pointers);
  return cublas;
}

Cublas const& cublas() {
  static Cublas const found = find_cublas();
  return found;
}

// The handle computes what it is told to as long as this lives: the type of a computation alone
// says whether it may be in TF32, and parts of a sum are never added in 16 bits.
class OwnModes {
 public:
  OwnModes(Handle handle, int math) : handle_(handle) {
    was_read_ = cublas().get_math(handle, &math_) == kSuccess &&
                cublas().get_pointers(handle, &pointers_) == kSuccess;
    are_set_ = was_read_ && cublas().set_math(handle, math) == kSuccess &&
               cublas().set_pointers(handle, kHostPointers) == kSuccess;
  }
  ~OwnModes() {
    if (!was_read_) return;
    cublas().set_math(handle_, math_);
    cublas().set_pointers(handle_, pointers_);
  }
  OwnModes(OwnModes const&) = delete;
  OwnModes& operator=(OwnModes const&) = delete;

  bool are_set() const { return are_set_; }

 private:
  Handle handle_;
  int math_ = 0, pointers_ = 0;
  bool was_read_ = false, are_set_ = false;
};

// A matrix as cuBLAS reads it, in columns.
struct Columns {
  void const* data;
  int64_t ld;
  int op;
};

// Of `rows` by K; `op_along_k` is what makes of rows along K the operand that is multiplied. The
// distance between lines counts for nothing where there is only one, but cuBLAS wants it to be no
// less than a line. Lines that overlap are refused.
std::optional<Columns> view_columns(CublasOperand const& operand, int64_t rows, int64_t k,
                                    int op_along_k) {
  bool const along_k = operand.major == Major::kK;
  int64_t const line = along_k ? k : rows, lines = along_k ? rows : k;
  if (operand.ld < line && lines > 1) return std::nullopt;
  return Columns{operand.data, std::max(operand.ld, line),
                 along_k ? op_along_k : kTransposed - op_along_k};
}

// A column as a line: cuBLAS has the faster kernels for it.
CublasOperand as_line(CublasOperand operand, int64_t rows, int64_t k) {
  if (k == 1 && operand.major == Major::kK && operand.ld == 1) {
    operand.ld = rows;
    operand.major = Major::kMn;
  }
  return operand;
}

int type_in_cublas(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return kFloat;
    case DataType::kFloat16:
      return kHalf;
    case DataType::kBFloat16:
      return kBFloat;
  }
  __builtin_unreachable();
}

}  // namespace

bool has_cublas() { return cublas().found; }

bool multiply_by_cublas(CublasProduct const& product, Device const& device) {
  // In columns y is of N by M: weight @ x.T. One row of it is a column of x @ weight.T too, for
  // which cuBLAS has the faster kernels.
  bool const is_row = product.m == 1 && product.batch == 1;
  int64_t const k = product.k, m = is_row ? product.n : product.m, n = is_row ? 1 : product.n;
  CublasOperand const weight = as_line(product.weight, product.n, k);
  std::optional<Columns> const a = is_row ? view_columns(product.x, n, k, kTransposed)
                                          : view_columns(weight, n, k, kTransposed),
                               b = is_row ? view_columns(weight, m, k, kAsItLies)
                                          : view_columns(product.x, m, k, kAsItLies);
  int64_t const ldy = is_row ? 1 : product.ldy;
  if (!has_cublas() || !a || !b) return false;
  if (product.y_type != product.type && product.y_type != DataType::kFloat32) return false;
  if (!cublas_was_called(device) && is_capturing(device)) return false;
  Handle handle = nullptr;
  if (torch_get_current_cuda_blas_handle(&handle) != AOTI_TORCH_SUCCESS) return false;
  remember_cublas(device);
  bool const is_fp32 = product.type == DataType::kFloat32;
  OwnModes const modes(handle, is_fp32 ? kDefaultMath : kFullSums);
  if (!modes.are_set()) return false;

  float const one = 1.0f, zero = 0.0f;
  int const type = type_in_cublas(product.type), y_type = type_in_cublas(product.y_type);
  int const compute =
      is_fp32 && product.precision == Precision::kTf32 ? kComputeTf32 : kComputeFp32;
  int const status =
      product.batch == 1
          ? cublas().multiply(handle, a->op, b->op, n, m, k, &one, a->data, type, a->ld, b->data,
                              type, b->ld, &zero, product.y, y_type, ldy, compute, kAnyAlgorithm)
          : cublas().multiply_batch(handle, a->op, b->op, n, m, k, &one, a->data, type, a->ld,
                                    product.weight.batch_stride, b->data, type, b->ld,
                                    product.x.batch_stride, &zero, product.y, y_type, product.ldy,
                                    product.y_batch_stride, product.batch, compute, kAnyAlgorithm);
  return status == kSuccess;
}

}  // namespace cutlass_fused
