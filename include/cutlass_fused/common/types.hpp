// What every kernel shares: vectors, GEMM arguments, the GPU, status.
// No torch and no CUTLASS in here: op files and host tests include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cutlass_fused/common/arch.hpp"
#include "cutlass_fused/common/data_type.hpp"

namespace cutlass_fused {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What launches depend on, read once per GPU.
struct Device {
  static constexpr int kTimedGbS = 4916;  // an H200's: what the estimates were fitted on

  int index;               // CUDA's ordinal
  int sm_count;            // streaming multiprocessors
  int shared_memory;       // bytes that one block may opt in to
  int compute_capability;  // major * 10 + minor
  int code;  // of the kernels without a product that it runs: what __CUDA_ARCH__ / 10 was, 80 or 90
  ArchSet archs;  // the generations of products that it runs, of those that were compiled
  int memory_gb_s = kTimedGbS;  // what its memory gives, by its clock and width
};

enum class Status : int32_t {
  kSuccess,
  kCudaError,    // cudaGetLastError() has the reason
  kUnknownTile,  // the forced tile is not in the table of this kernel
  kNoKernel,     // no kernel serves the problem on this GPU
  kNoDescriptor  // TMA cannot be told of the operands: stderr has the reason
};

// An fp32 view of a vector operand: `data[i * stride]` in its own element type, or `value`
// everywhere if there is no data. A stride of 0 broadcasts one element, which stays on the GPU.
// The type is a run-time choice because a vector is read once per output tile: templating on it
// would quadruple the number of kernels and speed up nothing.
struct Vector {
  void const* data = nullptr;
  int64_t stride = 0;
  DataType type = DataType::kFloat32;
  float value = 0.0f;

  CUTLASS_FUSED_HOST_DEVICE static Vector constant(float value) {
    return {nullptr, 0, DataType::kFloat32, value};
  }

  // An element as it lies in memory. To ask for it and to convert it are two steps, so that a
  // kernel can ask for elements of several vectors before it waits for one.
  using Raw = uint32_t;

  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t i) const {
    Raw raw;
    memcpy(&raw, &value, sizeof raw);
    if (data == nullptr) return raw;
    int64_t const offset = i * stride;
    if (size_of(type) == 2) return static_cast<uint16_t const*>(data)[offset];
    return static_cast<uint32_t const*>(data)[offset];
  }
  CUTLASS_FUSED_HOST_DEVICE float convert(Raw raw) const {
    float wide;
    memcpy(&wide, &raw, sizeof wide);
    uint16_t const narrow = uint16_t(raw);
    static_assert(kDataTypeCount == 3);  // another one has a branch of its own
    if (type == DataType::kFloat32) return wide;
    return type == DataType::kFloat16 ? __half2float(__ushort_as_half(narrow))
                                      : __bfloat162float(__ushort_as_bfloat16(narrow));
  }
  CUTLASS_FUSED_HOST_DEVICE float operator()(int64_t i) const { return convert(fetch(i)); }
};

// An fp32 matrix operand as it lies, of any strides, 0 among them. Without data it is 0 everywhere.
// `b`: of a batch, which has a matrix for each.
struct StridedMatrix {
  float const* data = nullptr;
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;

  CUTLASS_FUSED_HOST_DEVICE float operator()(int64_t m, int64_t n, int64_t b = 0) const {
    if (data == nullptr) return 0.0f;
    return data[b * batch_stride + m * row_stride + n * column_stride];
  }
};

// A matrix in rows whose elements lie side by side; ld is the distance between rows in elements.
struct Matrix {
  int64_t rows, columns;
  void const* data;
  int64_t ld;
  DataType type;
};

// How a matrix lies in memory, for a plan: `alignment` is the bytes, at most 16, that its address
// is a multiple of.
struct MatrixLayout {
  int64_t rows, columns, ld;
  int alignment;
  DataType type;
};

inline int alignment_of(void const* data) {
  uintptr_t const address = reinterpret_cast<uintptr_t>(data) | 16;
  return static_cast<int>(address & (~address + 1));
}
inline MatrixLayout layout_of(Matrix const& matrix) {
  return {matrix.rows, matrix.columns, matrix.ld, alignment_of(matrix.data), matrix.type};
}

// Which elements of an operand lie side by side: those along K, or those along M or N.
enum class Major { kK, kMn };

// y[m, n] = epilogue(sum_k x[m, k] * weight[n, k]); y is row-major, as x and weight are unless
// their majors say otherwise; leading dimensions in elements. x and weight have the input type of
// the Math row.
struct GemmArgs {
  int64_t m, n, k;
  void const* x;
  int64_t ldx;
  void const* weight;
  int64_t ldw;
  void* y;
  int64_t ldy;
  DataType y_type;
  Major x_major = Major::kK, weight_major = Major::kK;
};

// A matrix of y's shape and type that a kernel's epilogue reads by TMA, its rows ld apart.
struct Source {
  void const* data = nullptr;
  int64_t ld = 0;
};

}  // namespace cutlass_fused
