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
// Each block adds up its rows. The last block of a strip of columns that arrives merges what all of
// the strip have left in `partials`, always in the same order: so equal calls give equal bits.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cutlass_fused/program/print.hpp"

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

constexpr char kSumsHead[] = R"(
constexpr int kMostLines = 128;  // half of a block's threads

// Of each line of the block, the sums of all its lines: in the threads of the first. By halves, of
// which there are powers of two.
__device__ __forceinline__ void add_lines(float (&sums)[kSums * kPiece]) {
  __shared__ float shared[kSums * kPiece][kMostLines];
  int const line = threadIdx.y;
#pragma unroll 1
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    int const place = (line & (half - 1)) * blockDim.x + threadIdx.x;
    if (half <= line && line < 2 * half) {
#pragma unroll
      for (int i = 0; i < kSums * kPiece; ++i) shared[i][place] = sums[i];
    }
    __syncthreads();
    if (line < half) {
#pragma unroll
      for (int i = 0; i < kSums * kPiece; ++i) sums[i] += shared[i][place];
    }
    __syncthreads();
  }
}

// What a block leaves of a strip: words side by side in each, and so many of them.
constexpr int kVector = kPiece < 4 ? kPiece : 4;
constexpr int kVectors = kSums * kPiece / kVector;
constexpr int kUnderWay = kVectors <= 2 ? 4 : 2;  // blocks that a thread reads at once
using Vector = Piece<float, kVector>;

// The sums of a block's strip, from those of all its blocks. False: another block will have them.
__device__ __forceinline__ bool merge_blocks(float (&sums)[kSums * kPiece], float* partials,
                                             unsigned* arrived) {
  __shared__ bool is_last;
  long long const length = kVectors * blockDim.x;
  Vector::Word* const strip =
      reinterpret_cast<Vector::Word*>(partials) + length * gridDim.y * blockIdx.x + threadIdx.x;
  if (threadIdx.y == 0) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      Vector vector;
#pragma unroll
      for (int k = 0; k < kVector; ++k) vector.elements[k] = sums[i * kVector + k];
      strip[length * blockIdx.y + i * blockDim.x] = vector.words[0];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();
    // Behind the last block it is zero again, for the next kernel.
    is_last = atomicInc(arrived + blockIdx.x, gridDim.y - 1) == gridDim.y - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return false;
#pragma unroll
  for (int i = 0; i < kSums * kPiece; ++i) sums[i] = 0.0f;
#pragma unroll 1
  for (unsigned first = threadIdx.y; first < gridDim.y; first += kUnderWay * blockDim.y) {
    Vector vectors[kUnderWay][kVectors];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      unsigned const block = first + j * blockDim.y;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        Vector::Word const* const from = strip + length * block + i * blockDim.x;
        vectors[j][i].words[0] = block < gridDim.y ? __ldcg(from) : Vector::Word{};
      }
    }
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
#pragma unroll
      for (int i = 0; i < kSums * kPiece; ++i) {
        sums[i] += vectors[j][i / kVector].elements[i % kVector];
      }
    }
  }
  add_lines(sums);
  return true;
}
)";

// `conversions`: tests have others, which a host compiler reads, and other instructions beside.
inline std::string print_pointwise(Program const& program, Pointwise const& pointwise,
                                   std::string const& conversions = kConversions,
                                   bool has_instructions = true) {
  std::string before, in_row, operands, outputs, stores, sum_stores;
  for (size_t i = 0; i < pointwise.inputs.size(); ++i) {
    before += print_load(pointwise.inputs[i], int(i), false);
    in_row += print_load(pointwise.inputs[i], int(i), true);
    if (i > 0) operands += (i > 1 ? ", " : "") + print_element(pointwise.inputs[i], int(i));
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
    in_row += "    float y" + index + "[kPiece];\n";
    outputs += "      y" + index + "[i] = y[" + index + "];\n";
    stores += "    store(" + to + " + row * params.output_stride + column, y" + index + ");\n";
  }
  std::string const count = std::to_string(pointwise.outputs.size());
  std::string const rows =
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
      print_element(pointwise.inputs[0], 0) + ", p, y);\n" + outputs + "    }\n" + stores + "  }\n";
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
  if (sums == 0) {
    return source + "\n" + kName + ") {\n" + kPlace + kEnd + kColumn + rows + "}\n";
  }
  // All threads of a block meet in its sums.
  return source + "constexpr int kSums = " + std::to_string(sums) + ";\n" + kSumsHead + "\n" +
         kName + ", float* partials, unsigned* arrived) {\n" + kPlace + kColumn +
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
