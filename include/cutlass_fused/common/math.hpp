// THE table of Math rows: what a product is computed from, what it may be written as, and by
// which engine. A row is {name, in, out, engine}; `out` names the narrowest output: every row can
// also write fp32. A new element type is one row here, one in src/gemm/kernels.py, and the case of
// src/ops/dispatch.hpp that chooses it.
#pragma once

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// How the tensor cores are used. All of them accumulate in fp32.
enum class Engine {
  kPlain,   // 16-bit operands as they are
  kFp16x3,  // fp32 rows scaled and split into two fp16 parts each, three products: fp32 accuracy
  kFp16x1   // fp32 rows scaled and rounded to fp16, which has as many digits as TF32: one product
};

// Whether the product is one of rows that were split beforehand (split_rows.hpp).
constexpr bool splits_rows(Engine engine) {
  return engine == Engine::kFp16x3 || engine == Engine::kFp16x1;
}

struct F16 {
  static constexpr char kName[] = "f16";
  static constexpr DataType kIn = DataType::kFloat16;
  static constexpr DataType kOut = DataType::kFloat16;
  static constexpr Engine kEngine = Engine::kPlain;
};

struct Bf16 {
  static constexpr char kName[] = "bf16";
  static constexpr DataType kIn = DataType::kBFloat16;
  static constexpr DataType kOut = DataType::kBFloat16;
  static constexpr Engine kEngine = Engine::kPlain;
};

struct Fp16x3 {
  static constexpr char kName[] = "fp16x3";
  static constexpr DataType kIn = DataType::kFloat32;
  static constexpr DataType kOut = DataType::kFloat32;
  static constexpr Engine kEngine = Engine::kFp16x3;
};

struct Fp16x1 {
  static constexpr char kName[] = "fp16x1";
  static constexpr DataType kIn = DataType::kFloat32;
  static constexpr DataType kOut = DataType::kFloat32;
  static constexpr Engine kEngine = Engine::kFp16x1;
};

// fp32 operands as they are, on CUDA cores: no row of the table, as there is nothing to choose.
struct Fp32 {
  static constexpr char kName[] = "fp32";
};

// The type of the numbers that the tensor cores multiply.
template <class Math>
constexpr DataType operand_type = splits_rows(Math::kEngine) ? DataType::kFloat16 : Math::kIn;

}  // namespace cutlass_fused
