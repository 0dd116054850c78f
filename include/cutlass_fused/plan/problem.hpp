// What is to be multiplied, as host integers: all that a choice of kernels depends on.
#pragma once

#include <cstdint>
#include <limits>

#include "cutlass_fused/common/math.hpp"
#include "cutlass_fused/common/types.hpp"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

// What is known of the fp16 parts of an fp32 weight's rows.
enum class WeightSplit {
  kMissing,  // they are made if they are read
  kKept,     // they are there beside the weight
  kAlone     // they are there, and the weight is not
};

// How the rows of a matrix lie in memory.
struct Rows {
  int64_t ld = 0;      // elements from one row to the next; of kMn from one column to the next
  int alignment = 16;  // bytes, at most 16, that the address of the first is a multiple of
  Major major = Major::kK;
};

// y = x @ weight.T, `batch` times. The rows of x and weight are those that are multiplied: of an
// engine that splits rows, the split ones.
struct Problem {
  MathId math;
  int64_t m, n, k;
  DataType y_type;
  Rows x = {}, weight = {}, y = {};
  int64_t batch = 1;
  WeightSplit weight_split = WeightSplit::kMissing;
  bool copies_y = false;  // y is a copy, which is left out where the tile writes any rows

  Engine engine() const { return spec_of(math).engine; }
  DataType operand_type() const { return operand_type_of(math); }
  int operand_bytes() const { return size_of(operand_type()); }
  // The numbers of a row that a kernel multiplies: of split rows all that lie there, since zeros
  // pad them.
  int64_t multiplied_k() const {
    if (!splits_rows(math)) return k;
    return SplitLayout{0, k, engine() == Engine::kFp16x3}.pitch();
  }
  int64_t y_bytes() const { return m * n * size_of(y_type); }
};

// The problem of operands as they lie in memory; null pointers are of what will be aligned.
inline Problem make_problem(MathId math, GemmArgs const& gemm) {
  return {math,
          gemm.m,
          gemm.n,
          gemm.k,
          gemm.y_type,
          {gemm.ldx, alignment_of(gemm.x), gemm.x_major},
          {gemm.ldw, alignment_of(gemm.weight), gemm.weight_major},
          {gemm.ldy, alignment_of(gemm.y)}};
}

// The problem of the parts of operands that are split, as a product reads them: along K, but for
// those of a weight that `lies along N` (choose_product.hpp).
inline Problem parts_of(Problem problem, bool along_n) {
  problem.x = problem.weight = {problem.multiplied_k()};
  if (along_n) {
    SplitLayout const transposed{problem.k, problem.n, problem.engine() == Engine::kFp16x3};
    problem.weight = {transposed.pitch(), 16, Major::kMn};
  }
  return problem;
}

// The problem of operands that are to be split.
inline Problem make_split_problem(MathId math, GemmArgs const& gemm) {
  return parts_of(make_problem(math, gemm), /*along_n=*/false);
}

// Whether kernels can index the problem: with 32-bit integers, in which K is also rounded up to
// whole stages, on a grid of one dimension. 32 x 64 is the smallest tile, and panels are padded to
// eight tiles.
inline bool fits_kernels(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  return m <= kMax && n <= kMax && k <= kMax - 256 &&
         ceil_div(m, 32) * (ceil_div(n, 64) + 7) <= kMax;
}
inline bool fits_kernels(Problem const& problem) {
  return fits_kernels(problem.m, problem.n, problem.multiplied_k());
}

}  // namespace cutlass_fused
