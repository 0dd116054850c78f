// THE table of element types that a tensor handed to a kernel may have. A type is a name in the
// list and a row of TypeTraits; what differs from type to type asks that row, or visits the list,
// so that a place which was forgotten does not compile.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define CUTLASS_FUSED_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CUTLASS_FUSED_HOST_DEVICE inline
#endif

namespace cutlass_fused {

#define CUTLASS_FUSED_DATA_TYPES(ROW) ROW(kFloat32) ROW(kFloat16) ROW(kBFloat16)

#define CUTLASS_FUSED_NAME_TYPE(name) name,
enum class DataType : int32_t { CUTLASS_FUSED_DATA_TYPES(CUTLASS_FUSED_NAME_TYPE) };
#undef CUTLASS_FUSED_NAME_TYPE
#define CUTLASS_FUSED_NAME_TYPE(name) DataType::name,
constexpr DataType kDataTypes[] = {CUTLASS_FUSED_DATA_TYPES(CUTLASS_FUSED_NAME_TYPE)};
#undef CUTLASS_FUSED_NAME_TYPE
constexpr int kDataTypeCount = sizeof kDataTypes / sizeof kDataTypes[0];

template <DataType>
struct TypeTraits;
template <>
struct TypeTraits<DataType::kFloat32> {
  using Storage = float;
  static constexpr char kName[] = "float32";  // as PyTorch has it
  static constexpr float kInverseEps = 0x1p23f;
};
template <>
struct TypeTraits<DataType::kFloat16> {
  using Storage = __half;
  static constexpr char kName[] = "float16";
  static constexpr float kInverseEps = 0x1p10f;
};
template <>
struct TypeTraits<DataType::kBFloat16> {
  using Storage = __nv_bfloat16;
  static constexpr char kName[] = "bfloat16";
  static constexpr float kInverseEps = 0x1p7f;
};

template <DataType kType>
using Storage = typename TypeTraits<kType>::Storage;

CUTLASS_FUSED_HOST_DEVICE float to_float(float value) { return value; }
CUTLASS_FUSED_HOST_DEVICE float to_float(__half value) { return __half2float(value); }
CUTLASS_FUSED_HOST_DEVICE float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// call(std::integral_constant<DataType, type>{}), for the host.
template <class Call>
auto for_type(DataType type, Call const& call) {
#define CUTLASS_FUSED_CALL_FOR_TYPE(name) \
  if (type == DataType::name) return call(std::integral_constant<DataType, DataType::name>{});
  CUTLASS_FUSED_DATA_TYPES(CUTLASS_FUSED_CALL_FOR_TYPE)
#undef CUTLASS_FUSED_CALL_FOR_TYPE
  __builtin_unreachable();
}

// One comparison, since kernels ask too.
constexpr int size_of(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }
#define CUTLASS_FUSED_CHECK_SIZE(name) \
  static_assert(size_of(DataType::name) == sizeof(Storage<DataType::name>));
CUTLASS_FUSED_DATA_TYPES(CUTLASS_FUSED_CHECK_SIZE)
#undef CUTLASS_FUSED_CHECK_SIZE

inline char const* name_of(DataType type) {
  return for_type(type, [](auto row) { return TypeTraits<row()>::kName; });
}

}  // namespace cutlass_fused
