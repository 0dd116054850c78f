// A program as a kernel of its own, for elements that lie in memory: a product that another kernel
// left there, or gradients.
//
//   extern "C" __global__ void cutlass_fused_pointwise(PointwiseParams)
//
// A thread has a piece of 16 bytes of the widest row there is: it keeps the operands of a row, and
// walks down the rows. Operands and outputs have types of their own, all arithmetic is fp32 (that
// of program/arithmetic.hpp by the types of the outputs), and an output is rounded once.
#pragma once

#include <string>
#include <vector>

#include "cutlass_fused/program/print.hpp"

namespace cutlass_fused::program {

enum class Kind { kScalar, kRow, kColumn, kTile };

struct Element {
  Type type;
  Kind kind;
};

// acc and then the operands, and the types of the outputs, all of which are tiles.
struct Pointwise {
  std::vector<Element> inputs;
  std::vector<Type> outputs;
  int piece;  // elements that a thread takes at a time: a power of two; each row has a multiple
};

// What the kernel takes; printed below for a compiler that sees no header.
struct PointwiseParams {
  void const* inputs[kMostOperands + 1];
  void* outputs[kMostOutputs];
  // Elements from a row of a tile to the next: of each input, and of all outputs.
  long long input_strides[kMostOperands + 1];
  long long output_stride;
  int rows;
  int pieces;  // of a row
};

static_assert(sizeof(PointwiseParams) == 8 * (17 + 8 + 17 + 1) + 2 * 4);

constexpr char kConversions[] = R"(
struct Half { unsigned short bits; };
struct BFloat { unsigned short bits; };

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(BFloat x) {
  return __int_as_float(unsigned(x.bits) << 16);
}
__device__ __forceinline__ float to_float(Half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ void round_to(float& y, float x) { y = x; }
__device__ __forceinline__ void round_to(Half& y, float x) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
__device__ __forceinline__ void round_to(BFloat& y, float x) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
)";

constexpr char kPointwiseHead[] = R"(
struct Params {
  void const* inputs[17];
  void* outputs[8];
  long long input_strides[17];
  long long output_stride;
  int rows;
  int pieces;
};

template <int kBytes> struct Words;
template <> struct Words<2> { using Type = unsigned short; };
template <> struct Words<4> { using Type = unsigned; };
template <> struct Words<8> { using Type = uint2; };
template <> struct Words<16> { using Type = uint4; };

// Of so many elements, read and written in words of at most 16 bytes.
template <class Element, int kCount>
union Piece {
  static constexpr int kBytes = kCount * int(sizeof(Element));
  using Word = typename Words<(kBytes < 16 ? kBytes : 16)>::Type;
  static constexpr int kWords = kBytes / int(sizeof(Word));
  Word words[kWords];
  Element elements[kCount];
  __device__ Piece() {}
};

template <int kCount, class Element>
__device__ __forceinline__ void load(float (&values)[kCount], Element const* from) {
  Piece<Element, kCount> piece;
  using Word = typename Piece<Element, kCount>::Word;
#pragma unroll
  for (int i = 0; i < piece.kWords; ++i) piece.words[i] = reinterpret_cast<Word const*>(from)[i];
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = to_float(piece.elements[i]);
}

template <int kCount, class Element>
__device__ __forceinline__ void store(Element* to, float const (&values)[kCount]) {
  Piece<Element, kCount> piece;
  using Word = typename Piece<Element, kCount>::Word;
#pragma unroll
  for (int i = 0; i < kCount; ++i) round_to(piece.elements[i], values[i]);
#pragma unroll
  for (int i = 0; i < piece.kWords; ++i) reinterpret_cast<Word*>(to)[i] = piece.words[i];
}
)";

inline char const* name_of(Type type) {
  switch (type) {
    case Type::kFloat32:
      return "float";
    case Type::kFloat16:
      return "Half";
    case Type::kBFloat16:
      break;
  }
  return "BFloat";
}

// The lines that fill values<i>, and where they stand: in front of all rows, or in each.
inline std::string print_load(Element const& input, int index, bool in_row) {
  std::string const i = std::to_string(index);
  std::string const from =
      "static_cast<" + std::string(name_of(input.type)) + " const*>(params.inputs[" + i + "])";
  bool const is_of_row = input.kind == Kind::kColumn || input.kind == Kind::kTile;
  if (is_of_row != in_row) return "";
  std::string const indent = in_row ? "    " : "  ";
  switch (input.kind) {
    case Kind::kTile:
      return indent + "float x" + i + "[kPiece];\n" + indent + "load(x" + i + ", " + from +
             " + row * params.input_strides[" + i + "] + column);\n";
    case Kind::kRow:
      return indent + "float x" + i + "[kPiece];\n" + indent + "load(x" + i + ", " + from +
             " + column);\n";
    case Kind::kColumn:
      return indent + "float const x" + i + " = to_float(" + from + "[row * params.input_strides[" +
             i + "]]);\n";
    case Kind::kScalar:
      break;
  }
  return indent + "float const x" + i + " = to_float(*" + from + ");\n";
}

inline std::string print_element(Element const& input, int index) {
  bool const is_piece = input.kind == Kind::kRow || input.kind == Kind::kTile;
  return "x" + std::to_string(index) + (is_piece ? "[i]" : "");
}

// `conversions`: tests have others, which a host compiler reads, and other instructions beside.
inline std::string print_pointwise(Program const& program, Pointwise const& pointwise,
                                   std::string const& conversions = kConversions,
                                   bool has_instructions = true) {
  std::string before, in_row, operands, outputs, stores;
  for (size_t i = 0; i < pointwise.inputs.size(); ++i) {
    before += print_load(pointwise.inputs[i], int(i), false);
    in_row += print_load(pointwise.inputs[i], int(i), true);
    if (i > 0) operands += (i > 1 ? ", " : "") + print_element(pointwise.inputs[i], int(i));
  }
  for (size_t i = 0; i < pointwise.outputs.size(); ++i) {
    std::string const index = std::to_string(i);
    in_row += "    float y" + index + "[kPiece];\n";
    outputs += "      y" + index + "[i] = y[" + index + "];\n";
    stores += "    store(static_cast<" + std::string(name_of(pointwise.outputs[i])) +
              "*>(params.outputs[" + index + "]) + row * params.output_stride + column, y" + index +
              ");\n";
  }
  std::string const count = std::to_string(pointwise.outputs.size());
  Arithmetic const arithmetic = choose_arithmetic(program, pointwise.outputs);
  return print(program, arithmetic, has_instructions) + conversions + kPointwiseHead +
         "\nconstexpr int kPiece = " + std::to_string(pointwise.piece) +
         ";\n\n"
         "extern \"C\" __global__ void __launch_bounds__(256) cutlass_fused_pointwise(\n"
         "    Params const params) {\n"
         "  int const place = blockIdx.x * blockDim.x + threadIdx.x;\n"
         "  if (place >= params.pieces) return;\n"
         "  long long const column = (long long)(place) * kPiece;\n" +
         before +
         "  long long const step = gridDim.y * blockDim.y;\n"
         "  for (long long row = blockIdx.y * blockDim.y + threadIdx.y; row < params.rows;\n"
         "       row += step) {\n" +
         in_row +
         "#pragma unroll\n"
         "    for (int i = 0; i < kPiece; ++i) {\n"
         "      float const p[] = {" +
         (operands.empty() ? "0.0f" : operands) +
         "};\n"
         "      float y[" +
         count +
         "];\n"
         "      cutlass_fused_program(" +
         print_element(pointwise.inputs[0], 0) + ", p, y);\n" + outputs + "    }\n" + stores +
         "  }\n"
         "}\n";
}

}  // namespace cutlass_fused::program
