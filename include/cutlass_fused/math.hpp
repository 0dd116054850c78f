// THE table of Math rows: what a product is computed from, what it may be written as, and by
// which engine. A row is {name, in, out, engine}; `out` names the narrowest output: every row can
// also write fp32. A new element type is one row here, one in src/gemm/kernels.py, and the case of
// src/ops/dispatch.hpp that chooses it.
#pragma once

#include "cutlass_fused/types.hpp"

namespace cutlass_fused {

// How the tensor cores are used. All of them accumulate in fp32.
enum class Engine {
  kPlain,   // 16-bit operands as they are
  kTf32,    // fp32 operands rounded to TF32 (10 explicit bits of significand), to nearest
  kTf32x3,  // fp32 operands split into two TF32 parts each, three products: fp32 accuracy
};

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

struct Tf32 {
  static constexpr char kName[] = "tf32";
  static constexpr DataType kIn = DataType::kFloat32;
  static constexpr DataType kOut = DataType::kFloat32;
  static constexpr Engine kEngine = Engine::kTf32;
};

struct Tf32x3 {
  static constexpr char kName[] = "tf32x3";
  static constexpr DataType kIn = DataType::kFloat32;
  static constexpr DataType kOut = DataType::kFloat32;
  static constexpr Engine kEngine = Engine::kTf32x3;
};

}  // namespace cutlass_fused
