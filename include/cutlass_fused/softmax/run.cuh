// run_row_softmax: which kernel serves a row, and its launch.
#pragma once

#include <algorithm>

#include "cutlass_fused/norm/batch_norm.hpp"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/softmax/row_softmax_short.cuh"
#include "cutlass_fused/softmax/row_softmax_wide.cuh"
#include "cutlass_fused/softmax/run_stream_sm90.cuh"
#include "cutlass_fused/softmax/row_softmax.hpp"

namespace cutlass_fused {

// The kernels count rows in 32 bits.
constexpr int64_t kMostSoftmaxRows = int64_t(1) << 30;

template <class Shape>
bool holds_row(int64_t columns) {
  return columns <= int64_t(Shape::kElements) * Shape::kThreads;
}

template <class Shape, DataType kIn, DataType kOut, Access kAccess, class Prologue>
Status launch_row_softmax(RowSoftmaxParams<Prologue> const& params, Device const& device,
                          cudaStream_t stream) {
  constexpr int kBlocks = kResidentBlocks<kIn, kOut, Prologue, Shape, kAccess>;
  // The fewest warps that hold the row; rows of one warp share a block.
  int const warps = int(ceil_div(params.columns, 32 * Shape::kElements));
  int const rows = warps > 1 ? 1 : Shape::kGoesOn ? 4 : Shape::kThreads / 32;
  int64_t blocks = ceil_div(params.rows, rows);
  int64_t const resident = kBlocks * Shape::kThreads / (32 * warps * rows) * device.sm_count;
  // A block goes on from row to row, loading one while it computes another. Where it need not read
  // a prologue anew, the next block may as well begin after a few rows, and the last wave is
  // shorter: by measurement after two rows; after eight where a row takes all threads of a block.
  if (Shape::kGoesOn && blocks > resident) {
    int const turns = 32 * warps == Shape::kThreads ? 8 : 2;
    blocks = std::max(resident, kHasColumns<Prologue> ? 0 : ceil_div(blocks, turns));
  }
  KernelLaunch const launch{device, stream, dim3(unsigned(blocks)), dim3(32 * warps, rows)};
  return launch(row_softmax<kIn, kOut, Prologue, Shape, kAccess>, params);
}

// In its fastest form. For whole rows not every kernel is worth having: without columns to keep,
// those that go on were slower by up to 10% on an H200.
template <class Shape, DataType kIn, DataType kOut, Access kAccess, class Prologue>
Status launch_fastest_row_softmax(RowSoftmaxParams<Prologue> const& params, Device const& device,
                                  cudaStream_t stream) {
  constexpr bool kOneRow = Shape::kGoesOn && !kHasColumns<Prologue> && kIn != DataType::kFloat32 &&
                           !std::is_same_v<Shape, FewElements>;
  if constexpr (kOneRow) {
    if (params.columns <= 32 * Shape::kElements) {
      return launch_fastest_row_softmax<OneRow<Shape>, kIn, kOut, kAccess>(params, device, stream);
    }
  }
  constexpr bool kWhole =
      kAccess == Access::kAligned && kIn == kOut && (kHasColumns<Prologue> || !Shape::kGoesOn);
  if constexpr (kWhole) {
    if (params.columns % (32 * Shape::kElements) == 0) {
      return launch_row_softmax<Shape, kIn, kOut, Access::kWhole>(params, device, stream);
    }
  }
  return launch_row_softmax<Shape, kIn, kOut, kAccess>(params, device, stream);
}

template <class Shape, DataType kOut, class Prologue>
Status launch_row_softmax_short(RowSoftmaxParams<Prologue> const& params, Device const& device,
                                cudaStream_t stream) {
  KernelLaunch const launch{device, stream, dim3(unsigned(params.rows / Shape::kRows)), dim3(32)};
  if constexpr (kOut == DataType::kFloat32) {
    if (params.columns == 32 * Shape::kElements) {
      return launch(row_softmax_short<kOut, Prologue, Shape, Access::kWhole>, params);
    }
  }
  return launch(row_softmax_short<kOut, Prologue, Shape, Access::kAligned>, params);
}

template <DataType kOut, class Prologue>
Status launch_row_softmax_short_by_width(RowSoftmaxParams<Prologue> const& params,
                                         Device const& device, cudaStream_t stream) {
  if (params.columns > 32 * ShortRow::kElements) {
    return launch_row_softmax_short<LongerRow, kOut>(params, device, stream);
  }
  // Two rows to a warp where one would take more than one wave of blocks.
  if (params.rows % 2 == 0 && params.rows > ShortRow::kBlocks * device.sm_count) {
    return launch_row_softmax_short<TwoShortRows, kOut>(params, device, stream);
  }
  return launch_row_softmax_short<ShortRow, kOut>(params, device, stream);
}

template <DataType kIn, DataType kOut, Access kAccess>
Status launch_row_softmax_wide(RowSoftmaxParams<Scaled> const& params, Device const& device,
                               cudaStream_t stream) {
  constexpr int kBlocks = 2;       // per SM, whose shared memory they divide
  constexpr int kReserved = 2048;  // of each: the static part, and what the system keeps
  constexpr int64_t kStep = kWideThreads * kWideElements<kIn, kAccess>;
  int64_t const step_bytes = kStep * size_of(kIn);
  // A shifted row's first piece begins in front of it.
  int64_t const in_front = kAccess == Access::kShifted ? kPieceWidth<kIn> - 1 : 0;
  int64_t const iterations = ceil_div(params.columns + in_front, kStep);
  int64_t const most = device.shared_memory / kBlocks - kReserved;
  int64_t const kept = std::min(iterations, most / step_bytes);
  auto const kernel = row_softmax_wide<kIn, kOut, kAccess>;
  int64_t const blocks = std::min<int64_t>(params.rows, kBlocks * device.sm_count);
  KernelLaunch launch{device, stream, dim3(unsigned(blocks)), dim3(kWideThreads)};
  launch.shared_bytes = size_t(kept * step_bytes);
  // The limit is one for all launches: those of another thread may come before the next line.
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most)) !=
      cudaSuccess) {
    return Status::kCudaError;
  }
  return launch(kernel, params, int(kept));
}

template <DataType kIn, DataType kOut, Access kAccess, class Prologue>
Status launch_row_softmax_by_width(RowSoftmaxParams<Prologue> const& params, Device const& device,
                                   cudaStream_t stream) {
  if (params.columns <= 32 * FewElements::kElements) {
    return launch_fastest_row_softmax<FewElements, kIn, kOut, kAccess>(params, device, stream);
  }
  if constexpr (kIn == DataType::kFloat32 && kAccess == Access::kAligned) {
    if (params.columns <= 32 * LongerRow::kElements) {
      return launch_row_softmax_short_by_width<kOut>(params, device, stream);
    }
  }
  // One warp to a row as long as its registers hold it, which needs no barrier.
  bool const one_warp = params.columns <= 32 * ManyElements::kElements &&
                        params.columns > 32 * MoreElements::kElements;
  if (holds_row<MoreElements>(params.columns) && !one_warp) {
    return launch_fastest_row_softmax<MoreElements, kIn, kOut, kAccess>(params, device, stream);
  }
  return launch_fastest_row_softmax<ManyElements, kIn, kOut, kAccess>(params, device, stream);
}

// Calls launch(params), with no prologue where the scale is known to be 1.
template <class Launch>
Status for_prologue(RowSoftmaxParams<Scaled> const& params, Launch const& launch) {
  Vector const& scale = params.prologue.scale;
  if (scale.data != nullptr || scale.value != 1.0f) return launch(params);
  return launch(
      RowSoftmaxParams<Identity>{params.x, params.ldx, params.y, params.rows, params.columns, {}});
}

template <DataType kIn, DataType kOut>
Status launch_row_softmax_by_access(RowSoftmaxParams<Scaled> const& params, Matrix const& x,
                                    Device const& device, cudaStream_t stream) {
  constexpr Access kAligned = Access::kAligned, kShifted = Access::kShifted,
                   kElements = Access::kElements;
  bool const aligned = x.columns % kPieceWidth<kIn> == 0 && has_aligned_rows(x.data, x.ld, kIn) &&
                       has_aligned_rows(params.y, x.columns, kOut);
  if (holds_row<ManyElements>(params.columns)) {
    return for_prologue(params, [&](auto const& held) {
      return aligned ? launch_row_softmax_by_width<kIn, kOut, kAligned>(held, device, stream)
                     : launch_row_softmax_by_width<kIn, kOut, kElements>(held, device, stream);
    });
  }
  if constexpr (kIn == kOut) {
    if (device.code >= 90 && has_equal_shifts(x, params.y)) {
      Status const status = for_prologue(params, [&](auto const& streamed) {
        return launch_row_softmax_stream<kIn>(streamed, device, stream);
      });
      if (status != Status::kNoKernel) return status;
    }
  }
  if (aligned) return launch_row_softmax_wide<kIn, kOut, kAligned>(params, device, stream);
  if constexpr (kIn == kOut) {
    if (has_equal_shifts(x, params.y)) {
      return launch_row_softmax_wide<kIn, kOut, kShifted>(params, device, stream);
    }
  }
  return launch_row_softmax_wide<kIn, kOut, kElements>(params, device, stream);
}

template <DataType kIn, DataType kOut>
Status run_row_softmax_to(Matrix const& x, Vector const& scale, void* y, Device const& device,
                          cudaStream_t stream) {
  for (int64_t first = 0; first < x.rows; first += kMostSoftmaxRows) {
    Matrix const part{std::min(kMostSoftmaxRows, x.rows - first), x.columns,
                      static_cast<char const*>(x.data) + first * x.ld * size_of(kIn), x.ld, kIn};
    RowSoftmaxParams<Scaled> const params{
        part.data, part.ld,      static_cast<char*>(y) + first * x.columns * size_of(kOut),
        part.rows, part.columns, {scale}};
    Status const status = launch_row_softmax_by_access<kIn, kOut>(params, part, device, stream);
    if (status != Status::kSuccess) return status;
  }
  return Status::kSuccess;
}

template <DataType kIn>
Status run_row_softmax(Matrix const& x, Vector const& scale, void* y, DataType y_type,
                       Device const& device, cudaStream_t stream) {
  if (y_type == kIn) return run_row_softmax_to<kIn, kIn>(x, scale, y, device, stream);
  if constexpr (kIn == DataType::kFloat32) {
    if (y_type == DataType::kFloat16) {
      return run_row_softmax_to<kIn, DataType::kFloat16>(x, scale, y, device, stream);
    }
    return run_row_softmax_to<kIn, DataType::kBFloat16>(x, scale, y, device, stream);
  } else {
    return run_row_softmax_to<kIn, DataType::kFloat32>(x, scale, y, device, stream);
  }
}

template <DataType kIn, DataType kOut>
Status launch_normalized_row_softmax(RowSoftmaxParams<UniformNormalization> const& params,
                                     bool aligned, Device const& device, cudaStream_t stream) {
  if (holds_row<FewElements>(params.columns)) {
    return aligned ? launch_fastest_row_softmax<FewElements, kIn, kOut, Access::kAligned>(
                         params, device, stream)
                   : launch_row_softmax<FewElements, kIn, kOut, Access::kElements>(params, device,
                                                                                   stream);
  }
  return launch_fastest_row_softmax<MoreElements, kIn, kOut, Access::kAligned>(params, device,
                                                                               stream);
}

template <DataType kIn>
Status run_normalized_row_softmax(Matrix const& x, ScaledNormalization const& map, void* scratch,
                                  void* y, DataType y_type, BehindKernel behind,
                                  Device const& device, cudaStream_t stream) {
  bool const aligned = has_aligned_rows(x.data, x.ld, kIn) && x.columns % kPieceWidth<kIn> == 0 &&
                       has_aligned_rows(y, x.columns, y_type);
  bool const held =
      holds_row<FewElements>(x.columns) || (aligned && holds_row<MoreElements>(x.columns));
  if (UniformNormalization::fits(map) && held && x.rows <= kMostSoftmaxRows) {
    RowSoftmaxParams<UniformNormalization> const params{
        x.data, x.ld, y, x.rows, x.columns, UniformNormalization(map), behind};
    if (y_type == kIn) {
      return launch_normalized_row_softmax<kIn, kIn>(params, aligned, device, stream);
    }
    if constexpr (kIn == DataType::kFloat32) {
      if (y_type == DataType::kFloat16) {
        return launch_normalized_row_softmax<kIn, DataType::kFloat16>(params, aligned, device,
                                                                      stream);
      }
      return launch_normalized_row_softmax<kIn, DataType::kBFloat16>(params, aligned, device,
                                                                     stream);
    }
  }
  // No registers are left for what the columns need: two kernels.
  Status const status = run_normalize<kIn>(x, map, scratch, behind, device, stream);
  if (status != Status::kSuccess) return status;
  return run_row_softmax<kIn>({x.rows, x.columns, scratch, x.columns, kIn}, Vector::constant(1.0f),
                              y, y_type, device, stream);
}

#define CUTLASS_FUSED_INSTANTIATE_ROW_SOFTMAX(TYPE)                                              \
  template Status run_row_softmax<DataType::TYPE>(Matrix const&, Vector const&, void*, DataType, \
                                                  Device const&, cudaStream_t);                  \
  template Status run_normalized_row_softmax<DataType::TYPE>(                                    \
      Matrix const&, ScaledNormalization const&, void*, void*, DataType, BehindKernel,           \
      Device const&, cudaStream_t)

}  // namespace cutlass_fused
