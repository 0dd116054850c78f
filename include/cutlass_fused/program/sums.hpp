// What a program's kernel (program/pointwise.hpp) is made of where outputs are sums over the rows.
#pragma once

#include <string>

namespace cutlass_fused::program {

// The way down the rows, a few at once. Behind the last row that one is read again, rather than
// none, which would part one load from the next.
inline std::string print_several_rows(std::string const& declared, std::string const& loads,
                                      std::string const& use) {
  return "  long long const step = gridDim.y * blockDim.y, last = params.rows - 1;\n"
         "  for (long long first = blockIdx.y * blockDim.y + threadIdx.y; first <= last;\n"
         "       first += kRows * step) {\n" +
         declared +
         "#pragma unroll\n"
         "    for (int j = 0; j < kRows; ++j) {\n"
         "      long long const at = first + j * step, row = at < last ? at : last;\n" +
         loads +
         "    }\n"
         "#pragma unroll\n"
         "    for (int j = 0; j < kRows; ++j) {\n"
         "      long long const row = first + j * step;\n"
         "      if (row > last) break;\n" +
         use + "    }\n  }\n";
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

}  // namespace cutlass_fused::program
