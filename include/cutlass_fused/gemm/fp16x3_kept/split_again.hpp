// The parts of a weight that are kept from call to call and made again where the weight is another
// one. That is found on the GPU, by a checksum: nothing waits for it, and writes that nobody counts
// are noticed. A captured graph finds it in each replay.
#pragma once

#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"
#include "cutlass_fused/gemm/fp16x3_kept/checksum.hpp"

namespace cutlass_fused {

// Whether these kernels serve a matrix of (layout.rows, layout.k): its rows follow each other, and
// each begins on 16 bytes.
inline bool can_split_again(SplitLayout const& layout, float const* from) {
  return layout.rows > 0 && layout.k > 0 && layout.k % 4 == 0 && alignment_of(from) == 16 &&
         layout.rows < Checksum::kMostElements / layout.k;
}

// The parts that run_split_rows makes, to the bit, and the checksum of what was split. `always`;
// else only where the matrix is not the one that the parts in `to` are of.
Status run_split_again(SplitLayout const& layout, float const* from, void* to, ChecksumState* state,
                       bool always, Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
