// The root of every SM80 visitor tree: rounds the fp32 result once and writes it to y.
#pragma once

#include "cutlass_fused/epilogue/visitors/nodes_sm80.hpp"

namespace cutlass_fused::sm80 {

struct StoreArgs {
  void* y;
  int64_t ldy;
  DataType type;    // of y: chosen at run time, 16-bit or fp32
  bool vectorised;  // y and its rows are 16-byte aligned
};

template <class ThreadMap, class Narrow>
struct Store : Leaf<StoreArgs> {
  using Leaf<StoreArgs>::Leaf;

  template <class Coordinates>
  struct Callbacks : threadblock::EmptyCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int m, int n, StoreArgs const* args)
        : coordinates(coordinates), m(m), n(n), args(args) {}

    Coordinates coordinates;
    int m, n;
    StoreArgs const* args;

    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int iteration, int row, int column, int,
                              cutlass::Array<Element, Size> const&,
                              cutlass::Array<float, Size> const& value) {
      auto const at = coordinates(0, column, row, iteration);
      int const at_m = cute::get<0>(at), at_n = cute::get<1>(at);
      if (at_m < m && at_n < n) {
        if (sizeof(Narrow) == 4 || args->type == DataType::kFloat32) {
          write<float>(value, at_m, at_n);
        } else {
          write<Narrow>(value, at_m, at_n);
        }
      }
      return value;
    }

    template <class T, int Size>
    CUTLASS_DEVICE void write(cutlass::Array<float, Size> const& value, int at_m, int at_n) {
      alignas(16) cutlass::Array<T, Size> const rounded =
          cutlass::NumericArrayConverter<T, float, Size>{}(value);
      T* const destination = static_cast<T*>(args->y) + at_m * args->ldy + at_n;
      if (args->vectorised && at_n + Size <= n) {
        constexpr int kPieces = Size * int(sizeof(T)) / 16;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kPieces; ++i) {
          reinterpret_cast<uint4*>(destination)[i] = reinterpret_cast<uint4 const*>(&rounded)[i];
        }
      } else {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < Size; ++i) {
          if (at_n + i < n) destination[i] = rounded[i];
        }
      }
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread_idx,
                                    ProblemShape problem_shape) {
    auto coordinates = visited_coordinates<ThreadMap>(tile, thread_idx, problem_shape);
    return Callbacks<decltype(coordinates)>(coordinates, cute::get<0>(problem_shape),
                                            cute::get<1>(problem_shape), this->params_ptr);
  }
};

}  // namespace cutlass_fused::sm80
