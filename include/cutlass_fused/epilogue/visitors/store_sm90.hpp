// The root of an SM90 visitor tree that writes y from registers: for outputs that TMA cannot write,
// since their type is a run-time choice or their rows are not aligned to 16 bytes.
#pragma once

#include "cutlass_fused/epilogue/visitors/nodes_sm90.hpp"

namespace cutlass_fused::sm90 {

struct StoreArgs {
  void* y;
  int64_t ldy;
  DataType type;  // of y: 16-bit or fp32
  bool paired;    // two neighbouring elements of a row, the first at an even column, are aligned
};

// A thread holds pairs of neighbouring columns of its tile: of y's rows, or, swapped, of two rows.
template <class Narrow, bool kSwapped>
struct Store : Leaf<StoreArgs> {
  using ElementAux = Narrow;  // what CUTLASS lays shared memory out for, unused
  using Leaf<StoreArgs>::Leaf;

  template <class Coordinates>
  struct Callbacks : fusion::detail::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int m, int n, int end_m, int end_n,
                             StoreArgs const* args)
        : coordinates(coordinates), m(m), n(n), end_m(end_m), end_n(end_n), args(args) {}

    Coordinates coordinates;  // (CPY, CPY_M, CPY_N, EPI_M, EPI_N), relative to (m, n)
    int m, n, end_m, end_n;
    StoreArgs const* args;

    template <class Element, int kSize>
    CUTLASS_DEVICE auto visit(cutlass::Array<Element, kSize> const&, int epi_v, int epi_m,
                              int epi_n, cutlass::Array<float, kSize> const& value) {
      auto const at = coordinates(cute::_, cute::_, cute::_, epi_m, epi_n);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; i += 2) {
        auto const first = at(epi_v * kSize + i);
        int const row = m + cute::get<0>(first), column = n + cute::get<1>(first);
        if (args->type == DataType::kFloat32) {
          write<float>(value[i], value[i + 1], row, column);
        } else {
          write<Narrow>(value[i], value[i + 1], row, column);
        }
      }
      return value;
    }

    template <class T>
    CUTLASS_DEVICE void write(float first, float second, int row, int column) const {
      if (row >= end_m || column >= end_n) return;
      cutlass::NumericConverter<T, float> const convert;
      int64_t const offset = kSwapped ? column * args->ldy + row : row * args->ldy + column;
      T* const to = static_cast<T*>(args->y) + offset;
      bool const both = column + 1 < end_n;
      if (!kSwapped && both && args->paired) {
        cutlass::AlignedArray<T, 2> pair;
        pair[0] = convert(first);
        pair[1] = convert(second);
        *reinterpret_cast<cutlass::AlignedArray<T, 2>*>(to) = pair;
      } else {
        to[0] = convert(first);
        if (both) to[kSwapped ? args->ldy : 1] = convert(second);
      }
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      fusion::detail::ConsumerStoreArgs<Args...> const& args) {
    int const end_m = cute::get<0>(args.problem_shape_mnkl);
    int const end_n = cute::get<1>(args.problem_shape_mnkl);
    return Callbacks<decltype(args.tCcD)>(args.tCcD, end_m - cute::get<0>(args.residue_tCcD),
                                          end_n - cute::get<1>(args.residue_tCcD), end_m, end_n,
                                          this->params_ptr);
  }
};

}  // namespace cutlass_fused::sm90
