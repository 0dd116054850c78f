// The split of fp32 matrices that lie along M or N.
#include "cutlass_fused/gemm/fp16x3/split_columns.cuh"

#include <algorithm>

namespace cutlass_fused {
namespace {

template <bool kLow, bool kFolds>
Status launch_split(SplitLayout const& layout, SplitRowsParams const& matrix, bool aligned,
                    void* memory, bool is_clear, Device const& device, cudaStream_t stream) {
  constexpr int kThreads = ColumnsBlock::kThreads;
  int64_t const panels = ceil_div(layout.rows, int64_t(ColumnsBlock::kRows));
  int64_t const words = ColumnsWorkspace::words(layout);
  if (words == 0) {
    auto* const kernel = aligned ? split_short_columns<kLow, true, kFolds>
                                 : split_short_columns<kLow, false, kFolds>;
    return KernelLaunch{device, stream, dim3(unsigned(panels)), dim3(kThreads)}(kernel, matrix);
  }
  int64_t const depth = ceil_div(layout.k, int64_t(ColumnsBlock::kDepth)), tiles = panels * depth;
  if (2 * tiles >= int64_t(1) << 31) return Status::kNoKernel;
  if (!is_clear) {
    Status const cleared =
        KernelLaunch{device, stream, dim3(unsigned(ceil_div(words, kThreads))), dim3(kThreads)}(
            clear_columns, static_cast<unsigned*>(memory), words, matrix.scales, layout.rows);
    if (cleared != Status::kSuccess) return cleared;
  }
  int64_t const resident = int64_t(ColumnsBlock::blocks_per_sm(aligned, false)) * device.sm_count;
  // Of as many tiles as are measured and split at once, half are measured. A panel is measured when
  // those beside it are.
  int64_t const group = std::min<int64_t>(SplitTile::kPanels, panels) * depth;
  SplitColumnsParams const params{matrix, ColumnsWorkspace::make(layout, memory), unsigned(depth),
                                  unsigned(panels),
                                  unsigned(std::min(tiles, group + resident / 2))};
  dim3 const grid(unsigned(std::min(2 * tiles, resident)));
  auto* const kernel =
      aligned ? split_columns<kLow, true, kFolds> : split_columns<kLow, false, kFolds>;
  return KernelLaunch{device, stream, grid, dim3(kThreads)}(kernel, params);
}

}  // namespace

Status run_split_columns(SplitLayout const& layout, float const* from, int64_t ld, void* to,
                         RowScale const* folded, void* workspace, bool is_clear,
                         Device const& device, cudaStream_t stream) {
  SplitRowsParams const matrix = SplitRowsParams::make(layout, from, ld, to, folded);
  bool const aligned = has_aligned_rows(from, ld, DataType::kFloat32);
  auto* const launch =
      folded == nullptr ? (layout.has_low ? launch_split<true, false> : launch_split<false, false>)
                        : (layout.has_low ? launch_split<true, true> : launch_split<false, true>);
  return launch(layout, matrix, aligned, workspace, is_clear, device, stream);
}

}  // namespace cutlass_fused
