// What every kernel shares: element types, vectors, GEMM arguments, architectures, status.
// No torch and no CUTLASS in here: op files and host tests include it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define CUTLASS_FUSED_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CUTLASS_FUSED_HOST_DEVICE inline
#endif

namespace cutlass_fused {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The element types that a tensor handed to a kernel may have.
enum class DataType : int32_t { kFloat32, kFloat16, kBFloat16 };

constexpr int size_of(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

// Architecture tags: the CUTLASS generation a kernel is written for, not the GPU it runs on.
struct Sm80 {
  static constexpr int kMinComputeCapability = 80;
};
struct Sm90 {  // its instructions are those of 9.0 alone
  static constexpr int kMinComputeCapability = 90;
};

// What launches depend on, read once per GPU.
struct Device {
  int index;               // CUDA's ordinal
  int sm_count;            // streaming multiprocessors
  int shared_memory;       // bytes that one block may opt in to
  int compute_capability;  // major * 10 + minor
  int code;                // 90 where it runs code compiled for 9.0 itself, else 80
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
    if (type == DataType::kFloat32) return wide;
    uint16_t const narrow = uint16_t(raw);
    return type == DataType::kFloat16 ? __half2float(__ushort_as_half(narrow))
                                      : __bfloat162float(__ushort_as_bfloat16(narrow));
  }
  CUTLASS_FUSED_HOST_DEVICE float operator()(int64_t i) const { return convert(fetch(i)); }
};

// A matrix in rows whose elements lie side by side; ld is the distance between rows in elements.
struct Matrix {
  int64_t rows, columns;
  void const* data;
  int64_t ld;
  DataType type;
};

// y[m, n] = epilogue(sum_k x[m, k] * weight[n, k]); all three row-major, leading dimensions in
// elements. x and weight have the input type of the Math row.
struct GemmArgs {
  int64_t m, n, k;
  void const* x;
  int64_t ldx;
  void const* weight;
  int64_t ldw;
  void* y;
  int64_t ldy;
  DataType y_type;
};

}  // namespace cutlass_fused
