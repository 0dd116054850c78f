// A tile of outputs that a product of split rows could not compute: those that are NaN now, and to
// which a row belongs that lost something.
#pragma once

#include "cutlass_fused/epilogue/elements/evaluate.hpp"
#include "cutlass_fused/softmax/reduce_row.cuh"
#include "cutlass_fused/gemm/simt/block.cuh"
#include "cutlass_fused/common/store.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct RepairRowsParams {
  GemmArgs gemm;
  StridedReader x, weight;
  typename Evaluator<typename Epilogue::Tree>::Arguments operands;
  RowScale const *x_scales, *weight_scales;  // null: of rows that lost nothing
  SplitReader split_weight;                  // where gemm.weight is null
};

template <class Epilogue>
RepairRowsParams<Epilogue> make_repair_params(GemmArgs const& gemm,
                                              typename Epilogue::Args const& epilogue,
                                              SplitMatrix const& x, SplitMatrix const& weight) {
  return {gemm,
          {gemm.x, gemm.ldx, gemm.x_major},
          {gemm.weight, gemm.ldw, gemm.weight_major},
          Evaluator<typename Epilogue::Tree>::pack(epilogue.operands()),
          x.scales,
          weight.scales,
          SplitReader{weight, weight.layout.pitch()}};
}

// Which outputs of a tile are to be computed: a bit each, 32 columns in a word.
template <class Block>
struct RepairMask {
  static constexpr int kColumns = Block::kColumns / 32;  // of words
  static constexpr int kWords = Block::kRows * kColumns;

  unsigned words[kWords];

  __device__ bool has(int row, int column) const {
    return words[row * kColumns + column / 32] >> column % 32 & 1;
  }
};

template <class Block>
union RepairShared {
  typename Block::Shared operands;
  float sums[Block::kRows][Block::kColumns];
};

// sums[i] = x[m[i]] . weight[n[i]], by a warp, in all of its lanes. What several sums need is on
// its way at once: that is what a warp waits for.
template <int kCount, class X, class Weight>
__device__ __forceinline__ void multiply_rows(int64_t depth, X const& x, Weight const& weight,
                                              int64_t const (&m)[kCount],
                                              int64_t const (&n)[kCount], float (&sums)[kCount]) {
  constexpr int kTerms = 64;  // of a lane in a sum of their own
  float parts[kCount] = {};
  for (float& sum : sums) sum = 0.0f;
  int terms = 0;
#pragma unroll 2
  for (int64_t k = threadIdx.x % 32; k < depth; k += 32) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) parts[i] = fmaf(x(m[i], k), weight(n[i], k), parts[i]);
    if (++terms % kTerms == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        sums[i] += parts[i];
        parts[i] = 0.0f;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = reduce_warp(sums[i] + parts[i], TakeSum{});
}

template <class Epilogue, class Block = SimtBlock>
struct RepairTile {
  using Mask = RepairMask<Block>;
  using Shared = RepairShared<Block>;
  static constexpr int kRows = Block::kRows, kColumns = Block::kColumns;
  static constexpr int kWarps = Block::kThreads / 32;

  RepairRowsParams<Epilogue> const& params;
  Mask& mask;
  int64_t m0, n0;

  // The rows of x and of weight that a tile multiplies, and whether the i-th of them lost
  // something.
  static constexpr int kOperandRows = kRows + kColumns;
  __device__ bool has_lost(int i) const {
    bool const of_x = i < kRows;
    int64_t const row = of_x ? m0 + i : n0 + i - kRows;
    RowScale const* const scales = of_x ? params.x_scales : params.weight_scales;
    return least_of(scales, row, of_x ? params.gemm.m : params.gemm.n) > 0.0f;
  }

  // Fills the mask. Returns whether it names many outputs of rows that are finite.
  __device__ bool find() const {
    constexpr int kAtOnce = 8;  // words of a warp, whose outputs are read at once
    static_assert(Mask::kWords % (kAtOnce * kWarps) == 0 && kWarps % Mask::kColumns == 0);
    GemmArgs const& gemm = params.gemm;
    Vector const y{gemm.y, 1, gemm.y_type, 0.0f};
    int const warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    int64_t const n = n0 + warp % Mask::kColumns * 32 + lane;
    float const least_of_column = least_of(params.weight_scales, n, gemm.n);
    int finite = 0;
#pragma unroll 1
    for (int first = warp; first < Mask::kWords; first += kAtOnce * kWarps) {
      Vector::Raw raw[kAtOnce];
      float least[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        int64_t const m = m0 + (first + i * kWarps) / Mask::kColumns;
        bool const is_in = m < gemm.m && n < gemm.n;
        raw[i] = y.fetch(is_in ? m * gemm.ldy + n : 0);
        least[i] = is_in ? least_of_column + least_of(params.x_scales, m, gemm.m) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        bool const is_missing = least[i] > 0.0f && isnan(y.convert(raw[i]));
        unsigned const bits = __ballot_sync(0xffffffffu, is_missing);
        finite += __popc(__ballot_sync(0xffffffffu, is_missing && isfinite(least[i])));
        if (lane == 0) mask.words[first + i * kWarps] = bits;
      }
    }
    return __syncthreads_or(finite * kWarps > kFewToTensorCores);
  }

  // Computes what the mask names, on CUDA cores.
  template <class Weight>
  __device__ void repair_named(Weight const& weight, Shared& shared) const {
    int const count = count_named();
    if (count > kFew) {
      repair_many(weight, shared);
    } else if (count > 0) {
      repair_few(weight);
    }
    __syncthreads();
  }

 private:
  // Up to so many outputs are computed one by one, by warps: where tensor cores could compute the
  // tile, and where CUDA cores would.
  static constexpr int kFewToTensorCores = 32, kFew = 512;

  __device__ static float least_of(RowScale const* scales, int64_t row, int64_t rows) {
    return scales != nullptr && row < rows ? scales[row].least() : 0.0f;
  }

  __device__ int count_named() const {
    int count = 0;
    for (int i = int(threadIdx.x) % 32; i < Mask::kWords; i += 32) count += __popc(mask.words[i]);
    return reduce_warp(count, TakeSum{});
  }

  // A warp computes kTogether at once, each of which one of its lanes holds: as many as a thread
  // has registers for, where three blocks of 256 share an SM.
  static constexpr int kTogether = Block::kThreads > 128 ? 2 : 4;
  template <class Weight>
  __device__ void repair_few(Weight const& weight) const {
    int const warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    int index = 0, held = 0, own = 0;
#pragma unroll 1
    for (int word = 0; word <= Mask::kWords; ++word) {
      bool const is_end = word == Mask::kWords;
      unsigned bits = is_end ? 0 : mask.words[word];
      do {
        if (bits != 0 && index++ / kTogether % kWarps == warp) {
          if (lane == held) own = word * 32 + __ffs(int(bits)) - 1;
          ++held;
        }
        bits &= bits - 1;
        if (held == kTogether || (is_end && held > 0)) {
          repair_held(weight, own, held);
          held = 0;
        }
      } while (bits != 0);
    }
  }
  template <class Weight>
  __device__ void repair_held(Weight const& weight, int own, int held) const {
    int const lane = int(threadIdx.x) % 32;
    int64_t m[kTogether], n[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      int const at = __shfl_sync(0xffffffffu, own, i < held ? i : 0);
      m[i] = m0 + at / kColumns;
      n[i] = n0 + at % kColumns;
    }
    float sums[kTogether];
    multiply_rows(params.gemm.k, params.x, weight, m, n, sums);
    float sum = sums[0];
#pragma unroll
    for (int i = 1; i < kTogether; ++i) sum = lane == i ? sums[i] : sum;
    if (lane < held) store(m0 + own / kColumns, n0 + own % kColumns, sum);
  }

  // All of the tile, of which those are stored: through shared memory, as the code of an epilogue
  // for each of a thread's sums would take more registers than there are.
  template <class Weight>
  __device__ void repair_many(Weight const& weight, Shared& shared) const {
    typename Block::Sums acc = {};
    Block::multiply(params.gemm, params.x, weight, m0, n0, shared.operands, acc);
#pragma unroll
    for (int i = 0; i < Block::kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < Block::kOwnColumns; ++j) {
        shared.sums[Block::row(i)][Block::column(j)] = acc[i][j];
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = int(threadIdx.x); i < kRows * kColumns; i += Block::kThreads) {
      int const row = i / kColumns, column = i % kColumns;
      if (mask.has(row, column)) store(m0 + row, n0 + column, shared.sums[row][column]);
    }
  }

  __device__ void store(int64_t m, int64_t n, float sum) const {
    GemmArgs const& gemm = params.gemm;
    float const value = Evaluator<typename Epilogue::Tree>::apply(params.operands, sum, m, n);
    store_from_float(gemm.y, m * gemm.ldy + n, gemm.y_type, value);
  }
};

// Whether a row of the block's tiles lost something: of every gridDim.x-th below count, which
// tile_at gives. Hardly ever has one: the rows of all of them are looked at at once, by threads
// that share out the tiles.
template <class Tile, int kThreads, class TileAt>
__device__ __forceinline__ bool have_lost(TileAt const& tile_at, int64_t count) {
  constexpr int kSharers = kThreads / Tile::kOperandRows;
  constexpr int kAtOnce = 8 / kSharers;  // tiles of a thread, of which it waits for all at once
  int const own_row = int(threadIdx.x) % Tile::kOperandRows;
  int64_t const step = int64_t(kSharers) * gridDim.x;
  bool lost = false;
#pragma unroll 1
  for (int64_t first = blockIdx.x + int64_t(threadIdx.x / Tile::kOperandRows) * gridDim.x;
       first < count; first += kAtOnce * step) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      int64_t const tile = first + i * step;
      lost |= tile_at(tile < count ? tile : first).has_lost(own_row);
    }
  }
  return __syncthreads_or(lost);
}

}  // namespace cutlass_fused
