// A plain fp32 product of a K of up to 32 on CUDA cores, of matrices that lie in either order: such
// as the gradient of a weight from a batch of 16. It writes more than it reads or computes: a block
// has all of K at once, and a thread four rows of one or two pieces of 16 bytes of y.
#pragma once

#include <algorithm>

#include "cutlass_fused/common/launch.cuh"
#include "cutlass_fused/common/store.cuh"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/gemm/simt/run.hpp"

namespace cutlass_fused {

// What follows the sums of four columns: an epilogue.
template <class Epilogue>
struct ShortKTail {
  using Operands = Columns<typename Epilogue::Tree>;
  using Arguments = typename Operands::Arguments;

  using Elements = typename Operands::Elements;
  Arguments const& arguments;
  int n, last;
  float values[4 * (Operands::kRows > 0 ? Operands::kRows : 1)];

  __device__ ShortKTail(Arguments const& arguments, int n, int last)
      : arguments(arguments), n(n), last(last) {
    int64_t const columns[4] = {n, min(n + 1, last), min(n + 2, last), min(n + 3, last)};
    Operands::load(arguments, columns, values, 4);
  }
  __device__ __forceinline__ float4 operator()(float const (&sums)[4], int m) const {
    Elements const elements[4] = {fetch(m, 0), fetch(m, 1), fetch(m, 2), fetch(m, 3)};
    return {Operands::apply(arguments, values + 0, 4, sums[0], m, n, elements[0]),
            Operands::apply(arguments, values + 1, 4, sums[1], m, n + 1, elements[1]),
            Operands::apply(arguments, values + 2, 4, sums[2], m, n + 2, elements[2]),
            Operands::apply(arguments, values + 3, 4, sums[3], m, n + 3, elements[3])};
  }

 private:
  __device__ __forceinline__ Elements fetch(int m, int column) const {
    return Operands::fetch(arguments, m, min(n + column, last));
  }
};

// Or nothing.
struct NoShortKTail {
  struct Arguments {};

  __device__ NoShortKTail(Arguments const&, int, int) {}
  __device__ __forceinline__ float4 operator()(float const (&sums)[4], int) const {
    return {sums[0], sums[1], sums[2], sums[3]};
  }
};

template <class Tail>
struct ShortKParams {
  GemmArgs gemm;
  typename Tail::Arguments tail;
  bool whole_x, whole_weight, whole_y;  // lines begin at multiples of 16 bytes
};

// Few rows of a thread: blocks that load and blocks that store share an SM.
template <int kColumnPieces_, bool kReadsAtOnce_>
struct ShortKBlock {
  static constexpr int kThreads = 128, kAcross = 16, kColumnPieces = kColumnPieces_;
  static constexpr int kOwnRows = 4, kRows = kThreads / kAcross * kOwnRows;
  static constexpr int kColumnsOfPiece = 4 * kAcross, kColumns = kColumnPieces * kColumnsOfPiece;
  static constexpr int kUnroll = 8;  // of K, which zeros round up to it
  // Where all blocks run at once, a thread has all that it reads on its way at the same time; among
  // many blocks that took longer.
  static constexpr bool kReadsAtOnce = kReadsAtOnce_;

  // Rows by k.
  template <int kCount>
  using Lines = float[kShortK][kCount + 4];
};

// What a block reads of x, or of the weight: all of K of kCount rows from row0 on; zeros where
// there are none, and up to a whole kUnroll. Pieces are of four rows of a k, or of four k of a row.
template <class Block, int kCount>
class ShortKSide {
 public:
  using Lines = typename Block::template Lines<kCount>;
  static constexpr int kMostPieces = kCount / 4 * kShortK / Block::kThreads;  // of a thread
  using Pieces = float4[kMostPieces];

  __device__ __forceinline__ ShortKSide(void const* data, int64_t ld, Major major, bool whole,
                                        int row0, int rows, int k)
      : from_(static_cast<float const*>(data)),
        ld_(ld),
        along_k_(major == Major::kK),
        whole_(whole),
        row0_(row0),
        rows_(rows),
        k_(k) {
    int const lines = (k + Block::kUnroll - 1) / Block::kUnroll * Block::kUnroll;
    // Of rows, a power of two, as a division by it takes long.
    log_of_row_ = lines <= 8 ? 1 : lines <= 16 ? 2 : 3;
    count_ = along_k_ ? kCount << log_of_row_ : lines / 4 * kCount;
  }

  __device__ __forceinline__ void fetch(Pieces& pieces) const {
#pragma unroll
    for (int step = 0; step < kMostPieces; ++step) {
      int const i = int(threadIdx.x) + step * Block::kThreads;
      if (i < count_) pieces[step] = fetch_piece(i);
    }
  }
  __device__ __forceinline__ void store(Pieces const& pieces, Lines& to) const {
#pragma unroll
    for (int step = 0; step < kMostPieces; ++step) {
      int const i = int(threadIdx.x) + step * Block::kThreads;
      if (i < count_) store_piece(i, pieces[step], to);
    }
  }
  __device__ __forceinline__ void copy(Lines& to) const {
    for (int i = threadIdx.x; i < count_; i += Block::kThreads) {
      store_piece(i, fetch_piece(i), to);
    }
  }

 private:
  // The first number of a piece.
  struct Place {
    int k, row;
  };

  // Along K threads side by side read a row; where a block is alone on its SM eight of them take as
  // many rows, as what they store lies in different banks then.
  __device__ __forceinline__ Place find(int i) const {
    constexpr int kLogOfRows = Block::kReadsAtOnce ? 3 : 0, kRows = 1 << kLogOfRows;
    if (!along_k_) return {i / (kCount / 4), i % (kCount / 4) * 4};
    int const pieces = 1 << log_of_row_;
    return {((i >> kLogOfRows) & (pieces - 1)) * 4,
            (i >> (kLogOfRows + log_of_row_)) * kRows + i % kRows};
  }

  __device__ __forceinline__ float4 fetch_piece(int i) const {
    Place const at = find(i);
    int const row = row0_ + at.row;
    if (along_k_) return load_piece(from_ + row * ld_ + at.k, row < rows_ ? k_ - at.k : 0);
    return load_piece(from_ + at.k * ld_ + row, at.k < k_ ? rows_ - row : 0);
  }
  __device__ __forceinline__ void store_piece(int i, float4 const& piece, Lines& to) const {
    Place const at = find(i);
    if (along_k_) {
      to[at.k][at.row] = piece.x;
      to[at.k + 1][at.row] = piece.y;
      to[at.k + 2][at.row] = piece.z;
      to[at.k + 3][at.row] = piece.w;
    } else {
      *reinterpret_cast<float4*>(&to[at.k][at.row]) = piece;
    }
  }

  // Four numbers, of which `count` are there.
  __device__ __forceinline__ float4 load_piece(float const* at, int count) const {
    if (whole_ && count >= 4) return *reinterpret_cast<float4 const*>(at);
    return {count > 0 ? at[0] : 0.0f, count > 1 ? at[1] : 0.0f, count > 2 ? at[2] : 0.0f,
            count > 3 ? at[3] : 0.0f};
  }

  float const* from_;
  int64_t ld_;
  bool along_k_, whole_;
  int row0_, rows_, k_;
  int log_of_row_;  // of the pieces of a row
  int count_;       // of pieces
};

// One rounding per multiply-add, in order of k.
template <class Block, class Tail>
__global__ void __launch_bounds__(Block::kThreads)
    gemm_short_k(__grid_constant__ ShortKParams<Tail> const params) {
  __shared__ __align__(16) typename Block::template Lines<Block::kRows> x;
  __shared__ __align__(16) typename Block::template Lines<Block::kColumns> weight;
  GemmArgs const& gemm = params.gemm;
  int const k_count = int(gemm.k), rows = int(gemm.m), columns = int(gemm.n);
  int const across = (columns - 1) / Block::kColumns + 1;
  int const m0 = int(blockIdx.x / across) * Block::kRows;
  int const n0 = int(blockIdx.x % across) * Block::kColumns;
  int const own_row = int(threadIdx.x) / Block::kAcross * Block::kOwnRows;
  int const own_column = int(threadIdx.x) % Block::kAcross * 4;

  wait_for_previous_kernel();
  allow_next_kernel();
  using OfX = ShortKSide<Block, Block::kRows>;
  using OfWeight = ShortKSide<Block, Block::kColumns>;
  OfX const of_x(gemm.x, gemm.ldx, gemm.x_major, params.whole_x, m0, rows, k_count);
  OfWeight const of_weight(gemm.weight, gemm.ldw, gemm.weight_major, params.whole_weight, n0,
                           columns, k_count);
  if constexpr (Block::kReadsAtOnce) {
    typename OfX::Pieces x_pieces;
    typename OfWeight::Pieces weight_pieces;
    of_x.fetch(x_pieces);
    of_weight.fetch(weight_pieces);
    of_x.store(x_pieces, x);
    of_weight.store(weight_pieces, weight);
  } else {
    of_x.copy(x);
    of_weight.copy(weight);
  }
  __syncthreads();

  float sums[Block::kColumnPieces][Block::kOwnRows][4] = {};
#pragma unroll 1
  for (int k0 = 0; k0 < k_count; k0 += Block::kUnroll) {
#pragma unroll
    for (int k = k0; k < k0 + Block::kUnroll; ++k) {
      float4 const own = *reinterpret_cast<float4*>(&x[k][own_row]);
      float const of_row[Block::kOwnRows] = {own.x, own.y, own.z, own.w};
#pragma unroll
      for (int j = 0; j < Block::kColumnPieces; ++j) {
        float4 const piece =
            *reinterpret_cast<float4*>(&weight[k][own_column + j * Block::kColumnsOfPiece]);
#pragma unroll
        for (int i = 0; i < Block::kOwnRows; ++i) {
          sums[j][i][0] = fmaf(of_row[i], piece.x, sums[j][i][0]);
          sums[j][i][1] = fmaf(of_row[i], piece.y, sums[j][i][1]);
          sums[j][i][2] = fmaf(of_row[i], piece.z, sums[j][i][2]);
          sums[j][i][3] = fmaf(of_row[i], piece.w, sums[j][i][3]);
        }
      }
    }
  }

#pragma unroll
  for (int j = 0; j < Block::kColumnPieces; ++j) {
    int const n = n0 + own_column + j * Block::kColumnsOfPiece, count = columns - n;
    if (count <= 0) continue;
    Tail const tail(params.tail, n, columns - 1);
#pragma unroll
    for (int i = 0; i < Block::kOwnRows; ++i) {
      int const m = m0 + own_row + i;
      if (m >= rows) continue;
      float4 const y = tail(sums[j][i], m);
      int64_t const offset = m * gemm.ldy + n;
      if (params.whole_y && count >= 4) {
        *reinterpret_cast<float4*>(static_cast<float*>(gemm.y) + offset) = y;
      } else {
        store_from_float(gemm.y, offset, gemm.y_type, y.x);
        if (count > 1) store_from_float(gemm.y, offset + 1, gemm.y_type, y.y);
        if (count > 2) store_from_float(gemm.y, offset + 2, gemm.y_type, y.z);
        if (count > 3) store_from_float(gemm.y, offset + 3, gemm.y_type, y.w);
      }
    }
  }
}

template <class Block, class Tail>
Status run_short_k_block(ShortKParams<Tail> const& params, Device const& device,
                         cudaStream_t stream) {
  int64_t const tiles = ceil_div(params.gemm.m, int64_t(Block::kRows)) *
                        ceil_div(params.gemm.n, int64_t(Block::kColumns));
  return KernelLaunch{device, stream, dim3(unsigned(tiles)), dim3(Block::kThreads)}(
      gemm_short_k<Block, Tail>, params);
}

// Of fp32 matrices.
template <class Tail>
Status run_short_k_tail(GemmArgs const& gemm, typename Tail::Arguments const& tail,
                        Device const& device, cudaStream_t stream) {
  ShortKParams<Tail> const params{
      gemm, tail, has_aligned_rows(gemm.x, gemm.ldx, DataType::kFloat32),
      has_aligned_rows(gemm.weight, gemm.ldw, DataType::kFloat32),
      gemm.y_type == DataType::kFloat32 && has_aligned_rows(gemm.y, gemm.ldy, DataType::kFloat32)};
  using Few = ShortKBlock<1, true>;
  static_assert(Few::kRows == FewOutputs::kRows && Few::kColumns == FewOutputs::kColumns);
  if (FewOutputs::are(gemm.m, gemm.n, device)) {
    return run_short_k_block<Few>(params, device, stream);
  }
  return gemm.n <= ShortKBlock<1, false>::kColumns
             ? run_short_k_block<ShortKBlock<1, false>>(params, device, stream)
             : run_short_k_block<ShortKBlock<2, false>>(params, device, stream);
}

template <class Epilogue>
Status run_short_k(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                   Device const& device, cudaStream_t stream) {
  return run_short_k_tail<ShortKTail<Epilogue>>(
      gemm, Evaluator<typename Epilogue::Tree>::pack(epilogue.operands()), device, stream);
}

}  // namespace cutlass_fused
