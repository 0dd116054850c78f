// A program as a kernel of its own, for elements that lie in memory: a product that another kernel
// left there, or gradients.
//
//   extern "C" __global__ void cutlass_fused_pointwise(PointwiseParams)
//
// A thread has a piece of 16 bytes of the widest row there is: it keeps the operands of a row, and
// walks down the rows. Operands and outputs have types of their own, all arithmetic is fp32 (that
// of program/arithmetic.hpp by the types of the outputs), and an output is rounded once.
//
// An output may be the sum over the rows, as the gradient of a bias is. Its elements are added up
// in fp32 and are in no memory. The kernel then takes more:
//
//   extern "C" __global__ void cutlass_fused_pointwise(PointwiseParams, float* partials,
//                                                      unsigned* arrived)
//
// Each block adds up its rows, of which a thread reads a few before it uses them, and so waits once
// for all of these. The last block of a strip of columns that arrives merges what all of the strip
// have left in `partials`, always in the same order: so equal calls give equal bits.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cutlass_fused/program/print.hpp"
#include "cutlass_fused/program/sums.hpp"

namespace cutlass_fused::program {

enum class Kind { kScalar, kRow, kColumn, kTile };

struct Element {
  Type type;
  Kind kind;
};

// acc and then the operands, and the types of the outputs: tiles, and sums over the rows.
struct Pointwise {
  std::vector<Element> inputs;
  std::vector<Type> outputs;
  int piece;  // elements that a thread takes at a time: a power of two; each row has a multiple
  std::vector<bool> sums = {};  // which outputs are sums; empty: none is

  bool is_sum(size_t output) const { return output < sums.size() && sums[output]; }
  int count_sums() const { return static_cast<int>(std::count(sums.begin(), sums.end(), true)); }
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
// NaN, where either is.
__device__ __forceinline__ float larger_of(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
__device__ __forceinline__ float smaller_of(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
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

// First of all, as kernels do that KernelLaunch launches (common/launch.cuh): this one starts while
// the kernel before it ends, and the next may start while this one does.
__device__ __forceinline__ void take_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <int kBytes> struct Words;
template <> struct Words<2> { using Type = unsigned short; };
template <> struct Words<4> { using Type = unsigned; };
template <> struct Words<8> { using Type = uint2; };
template <> struct Words<16> { using Type = uint4; };

// Of so many elements, read and written in words of at most 16 bytes, of which it is a multiple.
template <class Element, int kCount>
union Piece {
  static constexpr int kBytes = kCount * int(sizeof(Element)), kWord = kBytes & -kBytes;
  using Word = typename Words<(kWord < 16 ? kWord : 16)>::Type;
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

inline bool is_of_row(Element const& input) {
  return input.kind == Kind::kColumn || input.kind == Kind::kTile;
}

inline bool is_piece(Element const& input) {
  return input.kind == Kind::kRow || input.kind == Kind::kTile;
}

// x<i>, which print_load fills; `dimension`: of several rows.
inline std::string print_declaration(Element const& input, int index,
                                     std::string const& dimension = "") {
  return "float x" + std::to_string(index) + dimension + (is_piece(input) ? "[kPiece]" : "") +
         ";\n";
}

inline std::string print_load(Element const& input, int index, std::string const& place = "") {
  std::string const i = std::to_string(index), to = "x" + i + place;
  std::string const from =
      "static_cast<" + std::string(name_of(input.type)) + " const*>(params.inputs[" + i + "])";
  std::string const row = "row * params.input_strides[" + i + "]";
  switch (input.kind) {
    case Kind::kTile:
      return "load(" + to + ", " + from + " + " + row + " + column);\n";
    case Kind::kRow:
      return "load(" + to + ", " + from + " + column);\n";
    case Kind::kColumn:
      return to + " = to_float(" + from + "[" + row + "]);\n";
    case Kind::kScalar:
      break;
  }
  return to + " = to_float(*" + from + ");\n";
}

inline std::string print_element(Element const& input, int index, std::string const& place) {
  return "x" + std::to_string(index) + (is_of_row(input) ? place : "") +
         (is_piece(input) ? "[i]" : "");
}

// Whether memory alone decides how long a program takes. In few blocks, which merge no sums, the
// gradient of a ReLU, of three lines, took 2.5 us less at 1024 x 768 in bf16 than in all SMs, and
// one of 19 lines 9 us longer (H200).
inline bool is_light(Program const& program) {
  constexpr size_t kMostLines = 6;
  return program.lines.size() <= kMostLines;
}

// Rows that a thread of a kernel with sums reads at once: enough bytes to be worth the wait, and
// what they have, and the sums, stay in registers.
inline int count_rows_at_once(Program const& program, Pointwise const& pointwise) {
  // Of long programs memory is not what a thread waits for: several rows would take registers that
  // four blocks of an SM have not, and then their code would be too long.
  constexpr size_t kLong = 16;
  if (program.lines.size() > kLong) return 1;
  int const most = is_light(program) ? 8 : 2;
  constexpr int kFew = 4, kMostBytes = 64, kMostWords = 64;
  int words = 0, widest = 1;
  for (Element const& input : pointwise.inputs) {
    int const numbers = input.kind == Kind::kTile ? pointwise.piece : is_of_row(input) ? 1 : 0;
    int const bytes = numbers * (input.type == Type::kFloat32 ? 4 : 2);
    words += (bytes + 3) / 4;
    widest = std::max(widest, bytes);
  }
  int const left = kMostWords - pointwise.count_sums() * pointwise.piece;
  int const fitting = std::max(left / std::max(words, 1), 1);
  return std::min({fitting, std::max(kMostBytes / widest, kFew), most});
}

// A kernel's way down the rows.
inline std::string print_rows_one_by_one(std::string const& body) {
  return "  long long const step = gridDim.y * blockDim.y;\n"
         "  for (long long row = blockIdx.y * blockDim.y + threadIdx.y; row < params.rows;\n"
         "       row += step) {\n" +
         body + "  }\n";
}

// `conversions`: tests have others, which a host compiler reads, and other instructions beside.
inline std::string print_pointwise(Program const& program, Pointwise const& pointwise,
                                   std::string const& conversions = kConversions,
                                   bool has_instructions = true) {
  bool const has_sums = pointwise.count_sums() > 0;
  std::string const at = has_sums ? "[j]" : "";
  std::string before, declared, loads, operands, results, outputs, stores, sum_stores;
  for (size_t i = 0; i < pointwise.inputs.size(); ++i) {
    Element const& input = pointwise.inputs[i];
    bool const is_walked = is_of_row(input);
    (is_walked ? declared : before) +=
        (is_walked ? "    " : "  ") +
        print_declaration(input, int(i), is_walked && has_sums ? "[kRows]" : "");
    if (is_walked) {
      loads += (has_sums ? "      " : "    ") + print_load(input, int(i), at);
    } else {
      before += "  " + print_load(input, int(i));
    }
    if (i > 0) operands += (i > 1 ? ", " : "") + print_element(input, int(i), at);
  }
  int sums = 0;
  for (size_t i = 0; i < pointwise.outputs.size(); ++i) {
    std::string const index = std::to_string(i);
    std::string const to = "static_cast<" + std::string(name_of(pointwise.outputs[i])) +
                           "*>(params.outputs[" + index + "])";
    if (pointwise.is_sum(i)) {
      std::string const from = std::to_string(sums++) + " * kPiece";
      outputs += "      sums[" + from + " + i] += y[" + index + "];\n";
      sum_stores += "  store(" + to +
                    " + column, *reinterpret_cast<float const(*)[kPiece]>(sums + " + from + "));\n";
      continue;
    }
    results += "    float y" + index + "[kPiece];\n";
    outputs += "      y" + index + "[i] = y[" + index + "];\n";
    stores += "    store(" + to + " + row * params.output_stride + column, y" + index + ");\n";
  }
  std::string const count = std::to_string(pointwise.outputs.size());
  std::string const use = results +
                          "#pragma unroll\n"
                          "    for (int i = 0; i < kPiece; ++i) {\n"
                          "      float const p[] = {" +
                          (operands.empty() ? "0.0f" : operands) +
                          "};\n"
                          "      float y[" +
                          count +
                          "];\n"
                          "      cutlass_fused_program(" +
                          print_element(pointwise.inputs[0], 0, at) + ", p, y);\n" + outputs +
                          "    }\n" + stores;
  std::string const rows = before + (has_sums ? print_several_rows(declared, loads, use)
                                              : print_rows_one_by_one(declared + loads + use));
  constexpr char kName[] =
      "extern \"C\" __global__ void __launch_bounds__(256) cutlass_fused_pointwise(\n"
      "    Params const params";
  constexpr char kPlace[] =
      "  take_turn();\n  int const place = blockIdx.x * blockDim.x + threadIdx.x;\n";
  constexpr char kEnd[] = "  if (place >= params.pieces) return;\n";
  constexpr char kColumn[] = "  long long const column = (long long)(place) * kPiece;\n";
  Arithmetic const arithmetic = choose_arithmetic(program, pointwise.outputs);
  std::string const source = print(program, arithmetic, has_instructions) + conversions +
                             kPointwiseHead +
                             "\nconstexpr int kPiece = " + std::to_string(pointwise.piece) + ";\n";
  if (!has_sums) {
    return source + "\n" + kName + ") {\n" + kPlace + kEnd + kColumn + rows + "}\n";
  }
  // All threads of a block meet in its sums.
  return source + "constexpr int kSums = " + std::to_string(sums) +
         ", kRows = " + std::to_string(count_rows_at_once(program, pointwise)) + ";\n" + kSumsHead +
         "\n" + kName + ", float* partials, unsigned* arrived) {\n" + kPlace + kColumn +
         "  float sums[kSums * kPiece] = {};\n"
         "  if (place < params.pieces) {\n" +
         rows +
         "  }\n"
         "  add_lines(sums);\n"
         "  if (gridDim.y > 1 && !merge_blocks(sums, partials, arrived)) return;\n"
         "  if (threadIdx.y > 0 || place >= params.pieces) return;\n" +
         sum_stores + "}\n";
}

}  // namespace cutlass_fused::program
