// The epilogue of an SM80 product whose batch norm runs behind it: writes z = epilogue(acc), and
// the mean and M2 of every tile's columns.
//
// A thread sums up its rows of some columns; the threads of a column meet in shared memory, first
// for the shift of what is stored, of which each has a row, then where one of them merges what they
// have in a fixed order. Two runs give the same bits.
#pragma once

#include "cutlass_fused/epilogue/visitors/nodes_sm80.hpp"
#include "cutlass_fused/epilogue/statistics.hpp"
#include "cutlass_fused/norm/statistics/part_statistics.hpp"
#include "cutlass_fused/norm/statistics/moments.cuh"

namespace cutlass_fused {

template <class Epilogue>
struct StatisticsSm80 {
  static constexpr auto& kName = Epilogue::kName;
  using Tree = StatisticsTree<typename Epilogue::Tree, kShiftsZ<Epilogue>>;

  struct Args {
    typename Epilogue::Args epilogue;
    PartPointers parts;

    auto operands() const { return std::make_pair(epilogue.operands(), parts); }
  };
};

namespace sm80 {

// Which rows of a tile a thread visits: those of equal rank visit the same ones.
template <class ThreadMap>
struct ThreadOfTile {
  static constexpr int kLanes = ThreadMap::Detail::kAccessWidth;  // that share a row
  static constexpr int kRanks = ThreadMap::kThreads / kLanes;
  static constexpr int kVector = ThreadMap::kElementsPerAccess;
  static constexpr int kVectors = ThreadMap::Iterations::kColumn;  // of a row to a lane
  static constexpr int kColumns = kVectors * kLanes * kVector;

  int index;

  CUTLASS_DEVICE int rank() const { return index / kLanes; }
  CUTLASS_DEVICE int column(int vector, int i) const {
    return (vector * kLanes + index % kLanes) * kVector + i;
  }
};

template <class ThreadMap, bool kShifted>
struct Moments : Leaf<PartPointers> {
  using Thread = ThreadOfTile<ThreadMap>;
  static constexpr int kVector = Thread::kVector, kVectors = Thread::kVectors;

  // What threads of each rank found; written by all threads of the block.
  struct SharedStorage {
    mutable float counts[Thread::kRanks];
    mutable float2 mean_m2[Thread::kRanks][Thread::kColumns];
  };

  CUTLASS_HOST_DEVICE Moments() {}
  CUTLASS_HOST_DEVICE Moments(PartPointers const& params, SharedStorage const& storage)
      : Leaf<PartPointers>(params, {}), storage(&storage) {}

  SharedStorage const* storage;

  template <class Coordinates>
  struct Callbacks : threadblock::EmptyCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, Thread const& thread, int m, int n,
                             cutlass::gemm::GemmCoord const& tile, PartPointers const& parts,
                             SharedStorage const* storage)
        : coordinates(coordinates),
          thread(thread),
          m(m),
          n(n),
          tile(tile),
          parts(parts),
          storage(storage) {}

    Coordinates coordinates;
    Thread thread;
    int m, n;
    cutlass::gemm::GemmCoord tile;
    PartPointers parts;
    SharedStorage const* storage;
    ShiftedSums sums[kVectors][kVector];
    float shifts[kVectors][kVector] = {};  // of what is stored
    int count[kVectors] = {};              // of equal numbers of rows

    // The lowest row first.
    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int iteration, int row, int vector, int,
                              cutlass::Array<Element, Size> const&,
                              cutlass::Array<float, Size> const& z) {
      static_assert(Size == kVector);
      bool const exists = cute::get<0>(coordinates(0, 0, row, iteration)) < m;
      if constexpr (kShifted) {
        if (parts.shifts != nullptr && iteration == 0 && row == 0) choose_shifts(vector, exists, z);
      }
      if (exists) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) {
          ShiftedSums& sum = sums[vector][i];
          // An infinite row must give an infinite mean.
          if (count[vector] == 0) sum.shift = isfinite(z[i]) ? z[i] : 0.0f;
          sum.add(z[i]);
        }
        ++count[vector];
      }
      if constexpr (kShifted) {
        cutlass::Array<float, Size> stored;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < Size; ++i) stored[i] = z[i] - shifts[vector][i];
        return stored;
      } else {
        return z;
      }
    }

    // All threads of the block find the shifts: the mean of the first rows of all ranks, where it
    // is far in the measure of their distances to it.
    CUTLASS_DEVICE void choose_shifts(int vector, bool exists,
                                      cutlass::Array<float, kVector> const& z) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVector; ++i) {
        // A NaN is no row. (Nor is one that is not finite: its column needs no shift.)
        storage->mean_m2[thread.rank()][thread.column(vector, i)].x =
            exists && isfinite(z[i]) ? z[i] : NAN;
      }
      __syncthreads();
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVector; ++i) {
        float sum = 0.0f, count = 0.0f, least = INFINITY, most = -INFINITY;
        for (int rank = 0; rank < Thread::kRanks; ++rank) {
          float const first = storage->mean_m2[rank][thread.column(vector, i)].x;
          if (isnan(first)) continue;
          // Divided before they are added: a sum of large numbers would overflow.
          sum += first * (1.0f / Thread::kRanks);
          count += 1.0f / Thread::kRanks;
          least = fminf(least, first);
          most = fmaxf(most, first);
        }
        float const mean = sum / count, spread = fmaxf(most - mean, mean - least);
        shifts[vector][i] = fabsf(mean) > parts.far_mean * spread ? mean : 0.0f;
      }
    }

    CUTLASS_DEVICE void end_epilogue() {
      float const rows = float(count[0]);
      if (kShifted && parts.shifts != nullptr) {
        publish_shifts();
        __syncthreads();  // until all have read what is overwritten now
      }
      if (thread.index % Thread::kLanes == 0) storage->counts[thread.rank()] = rows;
      CUTLASS_PRAGMA_UNROLL
      for (int vector = 0; vector < kVectors; ++vector) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) {
          cutlass_fused::Moments const own = sums[vector][i].moments(rows, shifts[vector][i]);
          storage->mean_m2[thread.rank()][thread.column(vector, i)] = {own.mean, own.m2};
        }
      }
      __syncthreads();
      PartStatistics const to{parts.parts, n};
      for (int column = thread.index; column < Thread::kColumns; column += ThreadMap::kThreads) {
        PartSums all;
        double const shift = storage->mean_m2[0][column].x;
        double count = 0.0;
        CUTLASS_PRAGMA_UNROLL
        for (int rank = 0; rank < Thread::kRanks; ++rank) {
          all.add(storage->counts[rank], storage->mean_m2[rank][column], shift);
          count += storage->counts[rank];
        }
        double const reciprocal = 1.0 / count;
        int const feature = tile.n() * Thread::kColumns + column;
        if (feature < n) {
          to.publish(tile.m(), feature, float(all.mean(shift, reciprocal)),
                     float(all.total_m2(reciprocal)));
        }
      }
    }

    CUTLASS_DEVICE void publish_shifts() {
      if (thread.rank() != 0) return;
      CUTLASS_PRAGMA_UNROLL
      for (int vector = 0; vector < kVectors; ++vector) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) {
          int const feature = tile.n() * Thread::kColumns + thread.column(vector, i);
          if (feature < n) parts.shifts[int64_t(tile.m()) * n + feature] = shifts[vector][i];
        }
      }
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread_idx,
                                    ProblemShape problem_shape) {
    auto coordinates = visited_coordinates<ThreadMap>(tile, thread_idx, problem_shape);
    return Callbacks<decltype(coordinates)>(
        coordinates, Thread{thread_idx}, cute::get<0>(problem_shape), cute::get<1>(problem_shape),
        tile, *this->params_ptr, storage);
  }
};

template <class ThreadMap, class Inner, bool kShifted>
struct TreeOf<ThreadMap, StatisticsTree<Inner, kShifted>> {
  using InnerTree = TreeOf<ThreadMap, Inner>;
  using type = threadblock::Sm80EVT<Moments<ThreadMap, kShifted>, typename InnerTree::type>;

  template <class Pair>
  static typename type::Arguments arguments(Pair const& operands) {
    return {InnerTree::arguments(operands.first), operands.second};
  }
};

}  // namespace sm80
}  // namespace cutlass_fused
