// The copy that gives TMA its rows.
#include "cutlass_fused/common/copy_rows.cuh"

#include <algorithm>

namespace cutlass_fused {

Status run_copy_rows(int64_t rows, int64_t columns, void const* from, int64_t ld_from, void* to,
                     int64_t ld_to, Device const& device, cudaStream_t stream) {
  CopyRowsParams const params{
      rows, columns, static_cast<uint16_t const*>(from), ld_from, static_cast<uint16_t*>(to),
      ld_to};
  constexpr int kBlocksPerSm = 8;
  int64_t const blocks =
      std::min<int64_t>(ceil_div(rows, CopyBlock::kRows), int64_t(kBlocksPerSm) * device.sm_count);
  dim3 const block(CopyBlock::kLanes, CopyBlock::kRows);
  return KernelLaunch{device, stream, dim3(unsigned(blocks)), block}(copy_rows, params);
}

}  // namespace cutlass_fused
