// Which rows TMA reads and writes: what every generation from 9.0 on loads its tiles with.
#pragma once

#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// TMA reads rows that start on 16 bytes and do not lie on top of each other, less than 2^40 bytes
// apart. They may end anywhere.
inline bool tma_reads_rows(Rows const& rows, int64_t count, int element_bytes) {
  if (rows.alignment < 16) return false;
  return count <= 1 || (rows.ld > 0 && rows.ld * element_bytes % 16 == 0 &&
                        rows.ld < (int64_t(1) << 40) / element_bytes);
}

inline bool tma_reads_x(Problem const& problem) {
  return tma_reads_rows(problem.x, problem.m, problem.operand_bytes());
}
inline bool tma_reads_weight(Problem const& problem) {
  return tma_reads_rows(problem.weight, problem.n, problem.operand_bytes());
}

// Whether TMA writes y, of this type.
inline bool tma_writes_rows(Problem const& problem, DataType type) {
  return problem.y_type == type && problem.y.alignment == 16 &&
         problem.y.ld * size_of(type) % 16 == 0;
}

}  // namespace cutlass_fused
