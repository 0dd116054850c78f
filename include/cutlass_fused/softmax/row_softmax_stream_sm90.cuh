// Row softmax of wide rows as a stream:  y[m, :] = softmax(x[m, :] * scale)
//
// Each block of a cluster holds a slice of the row in shared memory, one block to an SM. There the
// slices lie in a ring of chunks, which one warp fills by bulk copies: it runs ahead into the rows
// that follow, so that reads do not pause while a row is reduced or written. Groups of the other
// warps take turns: one writes its row while another adds up the exponentials of the next.
//
// All sums are in a fixed order, that of threads, warps and blocks: two runs give the same bits.
#pragma once

#include "cutlass_fused/common/bulk_copy_sm90.cuh"
#include "cutlass_fused/common/packed_piece.cuh"
#include "cutlass_fused/softmax/stream_exponential.cuh"
#include "cutlass_fused/softmax/stream_ring_sm90.cuh"

namespace cutlass_fused {

template <class Prologue>
struct StreamParams {
  RowSoftmaxParams<Prologue> rows;
  int slice;   // pieces of a row that a block holds
  int chunks;  // in which they come
};

#if __CUDA_ARCH__ >= 900

// Over the threads of a group, as reduce_row.
template <class T, class Merge>
__device__ __forceinline__ T reduce_group(T value, T (&slots)[StreamShape::kWarps], int group,
                                          T neutral, Merge merge) {
  int const warp = threadIdx.x % StreamShape::kThreads / 32, lane = threadIdx.x % 32;
  value = reduce_warp(value, merge);
  if (lane == 0) slots[warp] = value;
  // Barrier 0 is that of the block.
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(StreamShape::kThreads) : "memory");
  return reduce_warp(lane < StreamShape::kWarps ? slots[lane] : neutral, merge);
}

// The producer's warp. A row's first and last piece, where they are not whole, are no bulk copies:
// the lanes hold their elements, which they have loaded a row ahead.
template <DataType kType, class Params, class Control>
__device__ __forceinline__ void fill_ring(Params const& params, Control& control, uint4* ring,
                                          int blocks, int rank) {
  using T = Storage<kType>;
  using Shape = StreamShape;
  constexpr int kWidth = kPieceWidth<kType>;
  constexpr int kSecond = 16;  // the lane of the last piece's first element
  int const rows = int(params.rows.rows), columns = int(params.rows.columns);
  int const lane = threadIdx.x % 32;
  auto const find_row = [&](int row) {
    return static_cast<T const*>(params.rows.x) + row * params.rows.ldx;
  };
  auto const find_slice = [&](int row) {
    return StreamSlice<kWidth>(find_row(row), columns, params.slice, rank);
  };
  // Which piece, and which of its elements, this lane cares for; the piece is not whole, or -1.
  int const element = lane % kSecond;
  auto const find_edge = [&](StreamSlice<kWidth> const& slice) {
    int const piece = lane < kSecond ? slice.whole_begin - 1 : slice.whole_end;
    bool const here = piece >= slice.begin && !slice.is_whole(piece) && element < kWidth &&
                      slice.holds(piece, element);
    return here ? piece : -1;
  };
  auto const load_edge = [&](int row) {
    T value{};
    if (row < rows) {
      auto const slice = find_slice(row);
      int const piece = find_edge(slice);
      if (piece >= 0) value = find_row(row)[slice.column(piece) + element];
    }
    return value;
  };

  int const first = blockIdx.x / blocks, step = gridDim.x / blocks;
  RingPosition at(0), awaited(0);
  int ahead = 0;  // chunks that have been asked for since the one awaited
  T next = load_edge(first);
  for (int row = first; row < rows; row += step) {
    T const edge = next;
    next = load_edge(row + step);
    T const* const x = find_row(row);
    auto const slice = find_slice(row);
    int const edge_piece = find_edge(slice);
    for (int chunk = 0; chunk < params.chunks; ++chunk, at.advance()) {
      uint4* const to = ring + at.slot * Shape::kChunkPieces;
      int const begin = slice.begin + chunk * Shape::kChunkPieces;
      int const end = min(begin + Shape::kChunkPieces, slice.end);
      // At first nothing needs to be emptied: that is the phase before the first one.
      wait_for(&control.empty[at.slot], at.parity ^ 1);
      if (ahead == Shape::kAhead) {
        wait_for(&control.full[awaited.slot], awaited.parity);
        awaited.advance();
      } else {
        ++ahead;
      }
      if (edge_piece >= begin && edge_piece < end) {
        reinterpret_cast<T*>(to + (edge_piece - begin))[element] = edge;
        order_before_bulk_copies();  // that write there in later rows
      }
      // Each for what it has stored.
      if (lane != 0) arrive(&control.full[at.slot]);
      if (lane == 0) {
        int const from = max(begin, slice.whole_begin);
        int const bytes = max(min(end, slice.whole_end) - from, 0) * 16;
        uint64_t* const full = &control.full[at.slot];
        arrive_and_expect(full, bytes);
        if (bytes > 0) copy_bulk(to + (from - begin), x + slice.column(from), bytes, full);
      }
    }
  }
}

// The rows of a group.
template <DataType kType, class Prologue, class Control>
__device__ __forceinline__ void drain_ring(StreamParams<Prologue> const& params, Control& control,
                                           uint4 const* ring, int blocks, int rank) {
  using T = Storage<kType>;
  using Shape = StreamShape;
  using Sum = typename StreamSum<kType>::Sum;
  constexpr int kWidth = kPieceWidth<kType>, kPieces = Shape::kPieces;
  int const rows = int(params.rows.rows), columns = int(params.rows.columns);
  int const group = threadIdx.x / Shape::kThreads, thread = threadIdx.x % Shape::kThreads;
  int const lane = threadIdx.x % 32;
  float const scale = params.rows.prologue.factor();

  int const first = blockIdx.x / blocks, step = gridDim.x / blocks;
  int number = group;  // of the row, of those of this block
  for (int row = first + group * step; row < rows; row += Shape::kGroups * step) {
    T const* const x = static_cast<T const*>(params.rows.x) + row * params.rows.ldx;
    T* const y = static_cast<T*>(params.rows.y) + int64_t(row) * columns;
    StreamSlice<kWidth> const slice(x, columns, params.slice, rank);
    RingPosition const start(number * params.chunks);
    int const turn = number / Shape::kGroups;
    number += Shape::kGroups;

    // Calls work(first piece, its place in shared memory, whether to check what a piece holds):
    // only the warps at the ends of the row check, and those behind its end have nothing to do.
    auto const for_chunk = [&](int chunk, int slot, auto const& work) {
      int const begin = slice.begin + chunk * Shape::kChunkPieces;
      uint4 const* const from = ring + slot * Shape::kChunkPieces + thread;
      int const first_of_warp = begin + thread / 32 * 32;
      int const last_of_warp = first_of_warp + Shape::kChunkPieces - Shape::kThreads + 31;
      if (first_of_warp >= slice.whole_begin && last_of_warp < min(slice.whole_end, slice.end)) {
        work(begin + thread, from, std::false_type{});
      } else if (first_of_warp < slice.end) {
        work(begin + thread, from, std::true_type{});
      }
    };

    // The groups read in turn: who waits for a slot to be filled must know that the row before, of
    // which it may still hold a chunk, has come; a barrier tells the last two fillings apart only.
    if (turn + group > 0) {
      int const before = group > 0 ? group - 1 : Shape::kGroups - 1;
      wait_for(&control.read[before], (group > 0 ? turn : turn - 1) % 2);
    }
    StreamSum<kType> own;
    RingPosition at = start;
    for (int chunk = 0; chunk < params.chunks; ++chunk, at.advance()) {
      wait_for(&control.full[at.slot], at.parity);
      for_chunk(chunk, at.slot, [&](int piece, uint4 const* from, auto checked) {
        constexpr bool kChecked = decltype(checked)::value;
        uint4 raw[kPieces];
#pragma unroll
        for (int p = 0; p < kPieces; ++p) raw[p] = from[p * Shape::kThreads];
        auto const holds = [&](int p, int i) {
          return !kChecked || slice.holds(piece + p * Shape::kThreads, i);
        };
        float v[kWidth];
        float max = -INFINITY;
        if constexpr (kChecked) {
#pragma unroll
          for (int p = 0; p < kPieces; ++p) {
            unpack<kType>(raw[p], v);
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
              if (holds(p, i)) max = fmaxf(max, scale_by<Prologue>(v[i], scale));
            }
          }
        } else {
          max = find_max<kType>(raw, scale);
        }
        own.follow(max);
        // A sum for each piece: the additions of one do not wait for those of another.
        Sum sums[kPieces];
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          sums[p] = 0;
          unpack<kType>(raw[p], v);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            float const e = own.exponential(scale_by<Prologue>(v[i], scale));
            sums[p] += holds(p, i) ? e : 0.0f;
          }
        }
#pragma unroll
        for (int p = 0; p < kPieces; ++p) own.sum += sums[p];
      });
    }
    arrive(&control.read[group]);

    float max = reduce_group(own.shift, control.max_slots[group], group, -INFINITY, TakeMax{});
    Sum sum = reduce_group(own.sum_behind(max), control.sum_slots[group], group, Sum(0), TakeSum{});
    if (blocks > 1) {
      StreamPart* const parts = control.parts[group][turn % 2];
      uint64_t* const arrived = &control.arrived[group][turn % 2];
      if (thread < blocks) {
        send_to_block(thread, parts + rank, arrived, __double_as_longlong(sum),
                      __float_as_uint(max));
      }
      wait_for<true>(arrived, turn / 2 % 2);
      // For the row after the next: no block sends of that before this one has sent of the next.
      if (thread == 0) arrive_and_expect(arrived, blocks * int(sizeof(StreamPart)));
      StreamSum<kType> part;
      if (lane < blocks) {
        part.shift = parts[lane].max;
        part.sum = Sum(parts[lane].sum);
      }
      max = reduce_warp(part.shift, TakeMax{});
      sum = reduce_warp(part.sum_behind(max), TakeSum{});
    }

    StreamQuotient<kType> const quotient(own, max, sum);
    at = start;
    for (int chunk = 0; chunk < params.chunks; ++chunk, at.advance()) {
      for_chunk(chunk, at.slot, [&](int piece, uint4 const* from, auto checked) {
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          float v[kWidth];
          unpack<kType>(from[p * Shape::kThreads], v);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) v[i] = quotient(scale_by<Prologue>(v[i], scale));
          int const this_piece = piece + p * Shape::kThreads;
          T* const to = y + slice.column(this_piece);
          if (!decltype(checked)::value || slice.is_whole(this_piece)) {
            store_packed(to, pack<kType>(v));
          } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
              if (slice.holds(this_piece, i)) to[i] = round_to<T>(v[i]);
            }
          }
        }
      });
      arrive(&control.empty[at.slot]);
    }
  }
}

#endif  // __CUDA_ARCH__ >= 900

// A cluster to a row; its blocks hold params.slice pieces each, but for the last one. The rows
// of x and y lie equally far behind boundaries of 16 bytes. y may be x: a row is written when all
// blocks have read it.
template <DataType kType, class Prologue>
__global__ void __launch_bounds__(StreamShape::kAllThreads, 1)
    row_softmax_stream(__grid_constant__ StreamParams<Prologue> const params) {
#if __CUDA_ARCH__ >= 900
  using Shape = StreamShape;
  using Control = StreamControl<typename StreamSum<kType>::Sum>;
  static_assert(sizeof(Control) <= kStreamControlBytes);
  extern __shared__ __align__(128) uint4 stream_ring[];
  __shared__ Control control;
  int const blocks = blocks_of_cluster(), rank = rank_in_cluster();
  // Every thread arrives for itself: it costs no time (0.99 of it on an H200), and racecheck
  // follows no arrival of one lane for the others of its warp.
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < Shape::kSlots; ++slot) {
      init_barrier(&control.full[slot], 32);
      init_barrier(&control.empty[slot], Shape::kThreads);
    }
    for (uint64_t& read : control.read) init_barrier(&read, Shape::kThreads);
    for (auto& arrived : control.arrived) {
      for (uint64_t& barrier : arrived) init_barrier(&barrier, 1);
    }
    publish_barriers();
    for (auto& arrived : control.arrived) {
      for (uint64_t& barrier : arrived) {
        arrive_and_expect(&barrier, blocks * int(sizeof(StreamPart)));
      }
    }
  }
  meet_in_cluster();

  wait_for_previous_kernel();
  if (threadIdx.x >= Shape::kGroups * Shape::kThreads) {
    fill_ring<kType>(params, control, stream_ring, blocks, rank);
  } else {
    drain_ring<kType>(params, control, stream_ring, blocks, rank);
  }
  // No block ends while another one still sends to it.
  meet_in_cluster();
#endif
}

}  // namespace cutlass_fused
