// y = epilogue(acc): reads an fp32 product, writes y.
#pragma once

#include <algorithm>

#include "cutlass_fused/epilogue/elements/apply.hpp"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/epilogue/elements/float32.hpp"
#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/store.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct ApplyEpilogueParams {
  int64_t m, n;  // m: the rows of all products of a batch
  int64_t rows;  // of one of them
  float const* acc;
  void* y;
  int64_t ldy;
  DataType y_type;
  typename Columns<typename Epilogue::Tree>::Arguments operands;
};

struct ApplyEpilogueBlock {
  static constexpr int kLanes = 32, kRows = 8;
  static constexpr int kColumns = 4;  // of a thread
  static constexpr int kStrip = kLanes * kColumns, kThreads = kLanes * kRows;
  // Blocks that an SM holds of 32 registers a thread, and of 48, in which the kernel for fp32 alone
  // keeps all that it has.
  static constexpr int kPerSm = 8, kPerSmOfFloat32 = 5;
};

// Numbers side by side, which begin at a multiple of as many.
template <int kCount>
__device__ __forceinline__ void store_side_by_side(void* data, int64_t offset, DataType type,
                                                   float const (&values)[kCount]) {
  static_assert(kCount == 4);
  if (type == DataType::kFloat32) {
    return store_packed(static_cast<float*>(data) + offset,
                        make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]),
                                   __float_as_uint(values[2]), __float_as_uint(values[3])));
  }
  alignas(2 * kCount) uint16_t narrow[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) store_from_float(narrow, i, type, values[i]);
  store_packed(static_cast<uint16_t*>(data) + offset, *reinterpret_cast<uint2 const*>(narrow));
}

// A block has a strip of columns. It derives their Row operands once; a thread keeps those of its
// columns and walks down the rows, with the next row on its way while it computes one. kWide: its
// columns lie side by side, and rows begin at multiples of as many. Else neighbouring threads have
// neighbouring columns, so that whole sectors come and go whatever the alignment. kFloat32: y and
// all vectors are of fp32, as those behind a product in TF32 mostly are. To choose each type while
// it runs takes a block most of its instructions, which show where a thread has one row.
template <class Epilogue, bool kWide, bool kFloat32>
__global__ void __launch_bounds__(ApplyEpilogueBlock::kThreads,
                                  kFloat32 ? ApplyEpilogueBlock::kPerSmOfFloat32 : 1)
    apply_epilogue(__grid_constant__ ApplyEpilogueParams<Epilogue> const params) {
  using Operands = Columns<typename Epilogue::Tree>;
  using Block = ApplyEpilogueBlock;
  if constexpr (kFloat32) for_each_vector(params.operands, AssumeFloat32{});
  DataType const y_type = kFloat32 ? DataType::kFloat32 : params.y_type;
  constexpr int kColumns = Block::kColumns, kVectors = Operands::kRows > 0 ? Operands::kRows : 1;
  __shared__ alignas(16) float shared[kVectors][Block::kStrip];
  wait_for_previous_kernel();
  int64_t const strip = int64_t(blockIdx.x) * Block::kStrip;
  auto const place = [](int i) {
    return int(threadIdx.x) * (kWide ? kColumns : 1) + i * (kWide ? 1 : Block::kLanes);
  };
  auto const is_in = [&](int i) { return strip + place(i) < params.n; };
  // The product of a batch that row m is of, and its row there.
  auto const batch_of = [&](int64_t m) {
    return Operands::kTiles > 0 && params.rows < params.m ? m / params.rows : 0;
  };

  float acc[kColumns] = {};
  typename Operands::Elements elements[kColumns] = {};
  // An operand of y's shape is read, as acc is, before anything of its row is written.
  auto const read = [&](int64_t m) {
    int64_t const b = batch_of(m);
    if constexpr (kWide) {
      if (is_in(0)) {
        float4 const four =
            *reinterpret_cast<float4 const*>(params.acc + m * params.n + strip + place(0));
        acc[0] = four.x, acc[1] = four.y, acc[2] = four.z, acc[3] = four.w;
      }
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (!is_in(i)) continue;
      int64_t const n = strip + place(i);
      if constexpr (!kWide) acc[i] = params.acc[m * params.n + n];
      elements[i] = Operands::fetch(params.operands, m - b * params.rows, n, b);
    }
  };

  int64_t const step = int64_t(gridDim.y) * Block::kRows;
  int64_t m = int64_t(blockIdx.y) * Block::kRows + threadIdx.y;
  if (m < params.m) read(m);
  if constexpr (Operands::kRows > 0) {
    int const c = threadIdx.y * Block::kLanes + threadIdx.x;
    if (c < Block::kStrip && strip + c < params.n) {
      Operands::load(params.operands, strip + c, shared[0] + c, Block::kStrip);
    }
    __syncthreads();
  }
  float operands[kVectors][kColumns];
#pragma unroll
  for (int v = 0; v < Operands::kRows; ++v) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) operands[v][i] = shared[v][place(i)];
  }
#pragma unroll 1
  for (; m < params.m; m += step) {
    float values[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      float const* const of_column = kFloat32 ? shared[0] + place(i) : operands[0] + i;
      values[i] =
          Operands::apply(params.operands, of_column, kFloat32 ? Block::kStrip : kColumns, acc[i],
                          m - batch_of(m) * params.rows, strip + place(i), elements[i]);
    }
    if (m + step < params.m) read(m + step);
    int64_t const row = m * params.ldy + strip;
    if constexpr (kWide) {
      if (is_in(0)) store_side_by_side(params.y, row + place(0), y_type, values);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (is_in(i)) store_from_float(params.y, row + place(i), y_type, values[i]);
      }
    }
  }
}

// Down the rows no more blocks than keep all SMs busy a few times over, nor so many that a thread
// has less than `rows_of_thread`, which would pay for what a block does first; but no SM is left
// out.
inline int64_t choose_apply_rows(int64_t rows, int64_t strips, int rows_of_thread, int sm_count) {
  constexpr int64_t kMostRows = 65535, kRows = ApplyEpilogueBlock::kRows;
  int64_t const most = ceil_div(int64_t(ApplyEpilogueBlock::kPerSm) * sm_count, strips);
  int64_t const least = std::min(ceil_div(rows, kRows), ceil_div(int64_t(sm_count), strips));
  int64_t const enough = std::max(least, ceil_div(rows, kRows * rows_of_thread));
  return std::min({enough, most, kMostRows});
}

template <class Epilogue>
Status run_apply_epilogue(GemmArgs const& gemm, int64_t batch, float const* acc,
                          typename Epilogue::Args const& epilogue, Device const& device,
                          cudaStream_t stream) {
  constexpr int kColumns = ApplyEpilogueBlock::kColumns;
  ApplyEpilogueParams<Epilogue> const params{
      batch * gemm.m, gemm.n,
      gemm.m,         acc,
      gemm.y,         gemm.ldy,
      gemm.y_type,    Evaluator<typename Epilogue::Tree>::pack(epilogue.operands())};
  auto const begins_whole = [](void const* data, DataType type) {
    return reinterpret_cast<uintptr_t>(data) % (kColumns * size_of(type)) == 0;
  };
  bool const is_wide = gemm.n % kColumns == 0 && gemm.ldy % kColumns == 0 &&
                       begins_whole(acc, DataType::kFloat32) && begins_whole(gemm.y, gemm.y_type);
  int64_t const strips = ceil_div(gemm.n, int64_t(ApplyEpilogueBlock::kStrip));
  bool const of_float32 =
      is_wide && gemm.y_type == DataType::kFloat32 && is_float32(params.operands);
  int64_t const rows = choose_apply_rows(params.m, strips, of_float32 ? 1 : 2, device.sm_count);
  dim3 const grid{unsigned(strips), unsigned(rows)};
  dim3 const block(ApplyEpilogueBlock::kLanes, ApplyEpilogueBlock::kRows);
  auto const kernel = of_float32 ? apply_epilogue<Epilogue, true, true>
                      : is_wide  ? apply_epilogue<Epilogue, true, false>
                                 : apply_epilogue<Epilogue, false, false>;
  return KernelLaunch{device, stream, grid, block}(kernel, params);
}

}  // namespace cutlass_fused
