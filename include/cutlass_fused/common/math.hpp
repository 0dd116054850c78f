// THE table of Math rows: what a product is computed from, what it may be written as, by which
// engine, and under which precision. A new row is one line here: plans, the table of kernels and
// the tests read it.
#pragma once

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// How the tensor cores are used. All of them accumulate in fp32.
enum class Engine {
  kPlain,   // 16-bit operands as they are
  kFp16x3,  // fp32 rows scaled and split into two fp16 parts each, three products: fp32 accuracy
  kFp16x1,  // fp32 rows scaled and rounded to fp16, which has as many digits as TF32: one product
  kSimt     // fp32 operands as they are, on CUDA cores
};

// What callers ask of products of fp32 matrices, by word.
#define CUTLASS_FUSED_PRECISIONS(ROW) ROW(kIeee, "ieee") ROW(kTf32, "tf32")

#define CUTLASS_FUSED_PRECISION(id, word) id,
enum class Precision { CUTLASS_FUSED_PRECISIONS(CUTLASS_FUSED_PRECISION) };
#undef CUTLASS_FUSED_PRECISION
#define CUTLASS_FUSED_PRECISION(id, word) word,
constexpr char const* kPrecisionWords[] = {CUTLASS_FUSED_PRECISIONS(CUTLASS_FUSED_PRECISION)};
#undef CUTLASS_FUSED_PRECISION
constexpr int kPrecisions = sizeof kPrecisionWords / sizeof kPrecisionWords[0];

// `type` names the operands and the narrowest output: every row can also write fp32. A product
// takes the first row of its type and precision that serves its K, else the first of its type
// (choose_math in plan/make_plan.hpp).
// ShortTf32 is of a K too short to be split: in fp32 on CUDA cores, in TF32 by cuBLAS.
//      row     name      type       engine   precision
#define CUTLASS_FUSED_MATH_ROWS(ROW)              \
  ROW(F16, "f16", kFloat16, kPlain, kIeee)        \
  ROW(Bf16, "bf16", kBFloat16, kPlain, kIeee)     \
  ROW(Fp16x3, "fp16x3", kFloat32, kFp16x3, kIeee) \
  ROW(Fp16x1, "fp16x1", kFloat32, kFp16x1, kTf32) \
  ROW(Fp32, "fp32", kFloat32, kSimt, kIeee)       \
  ROW(ShortTf32, "fp32", kFloat32, kSimt, kTf32)

#define CUTLASS_FUSED_MATH_ID(Row, name, type, engine, precision) k##Row,
enum class MathId : int32_t { CUTLASS_FUSED_MATH_ROWS(CUTLASS_FUSED_MATH_ID) };
#undef CUTLASS_FUSED_MATH_ID
#define CUTLASS_FUSED_MATH_ID(Row, name, type, engine, precision) MathId::k##Row,
constexpr MathId kMathIds[] = {CUTLASS_FUSED_MATH_ROWS(CUTLASS_FUSED_MATH_ID)};
#undef CUTLASS_FUSED_MATH_ID

// Each row as a type, for kernels.
#define CUTLASS_FUSED_MATH_TYPE(Row, name, type, engine, precision) \
  struct Row {                                                      \
    static constexpr MathId kId = MathId::k##Row;                   \
    static constexpr char kName[] = name;                           \
    static constexpr DataType kIn = DataType::type;                 \
    static constexpr DataType kOut = DataType::type;                \
    static constexpr Engine kEngine = Engine::engine;               \
  };
CUTLASS_FUSED_MATH_ROWS(CUTLASS_FUSED_MATH_TYPE)
#undef CUTLASS_FUSED_MATH_TYPE

// Each row as a value, for the host.
struct MathSpec {
  char const* name;
  DataType type;
  Engine engine;
  Precision precision;
};
#define CUTLASS_FUSED_MATH_SPEC(Row, name, type, engine, precision) \
  {name, DataType::type, Engine::engine, Precision::precision},
constexpr MathSpec kMathSpecs[] = {CUTLASS_FUSED_MATH_ROWS(CUTLASS_FUSED_MATH_SPEC)};
#undef CUTLASS_FUSED_MATH_SPEC
constexpr MathSpec const& spec_of(MathId math) { return kMathSpecs[static_cast<int>(math)]; }

constexpr bool has_row(DataType type) {
  for (MathSpec const& row : kMathSpecs) {
    if (row.type == type) return true;
  }
  return false;
}
#define CUTLASS_FUSED_CHECK_ROW(type) static_assert(has_row(DataType::type));
CUTLASS_FUSED_DATA_TYPES(CUTLASS_FUSED_CHECK_ROW)
#undef CUTLASS_FUSED_CHECK_ROW

// Whether the product is one of rows that were split beforehand (gemm/fp16x3/split_rows.hpp).
constexpr bool splits_rows(Engine engine) {
  return engine == Engine::kFp16x3 || engine == Engine::kFp16x1;
}
constexpr bool splits_rows(MathId math) { return splits_rows(spec_of(math).engine); }

// The type of the numbers that the tensor cores multiply.
template <class Math>
constexpr DataType operand_type = splits_rows(Math::kEngine) ? DataType::kFloat16 : Math::kIn;
constexpr DataType operand_type_of(MathId math) {
  return splits_rows(math) ? DataType::kFloat16 : spec_of(math).type;
}

}  // namespace cutlass_fused
