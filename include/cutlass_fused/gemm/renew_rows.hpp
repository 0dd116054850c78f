// The split of a matrix that is used again: rows that have changed are split anew.
#pragma once

#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

// In front of the split each row has a mark, a hash of the bits that were split. Two rows that
// differ have the same once in 2^64.
struct MarkedSplit {
  SplitLayout layout;

  static int64_t marks_bytes(int64_t rows) {
    return ceil_div(rows * int64_t(sizeof(uint64_t)), int64_t(256)) * 256;
  }
  int64_t bytes() const { return marks_bytes(layout.rows) + layout.bytes(); }
};

// Makes what run_split_rows would make of the matrix out of what `kept` holds: rows whose marks are
// those of their bits are read, and no more. `is_new`: it holds nothing yet. For GPUs of 9.0, where
// products read parts in both directions.
Status run_renew_rows(MarkedSplit const& split, float const* from, int64_t ld, void* kept,
                      bool is_new, Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
