// The words of an open epilogue as CUTLASS 2.x visitor nodes: those of nodes_sm80.hpp without a
// branch, for which a program would have to be known.
#pragma once

#include "cutlass_fused/epilogue/visitors/nodes_sm80.hpp"
#include "cutlass_fused/epilogue/open/open.hpp"

namespace cutlass_fused::sm80 {

// The source at n, read once per column and tile.
template <class ThreadMap, class Source>
struct OpenRow : Leaf<Source> {
  using Leaf<Source>::Leaf;

  template <class Coordinates>
  struct Callbacks : threadblock::EmptyCallbacks {
    static constexpr int kVector = ThreadMap::kElementsPerAccess;
    static constexpr int kColumns = decltype(cute::size<1>(cute::declval<Coordinates>()))::value;

    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int n, Source const* source)
        : coordinates(coordinates), n(n), source(source) {}

    Coordinates coordinates;
    int n;
    Source const* source;
    cutlass::Array<float, kVector> values[kColumns];

    CUTLASS_DEVICE void begin_epilogue() {
      typename Source::Raw raw[kColumns][kVector];
      CUTLASS_PRAGMA_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) {
          int const at = cute::get<1>(coordinates(i, column, 0, 0));
          raw[column][i] = source->fetch(min(at, n - 1));
        }
      }
      CUTLASS_PRAGMA_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) values[column][i] = source->convert(raw[column][i]);
      }
    }

    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int, int, int column, int, cutlass::Array<Element, Size> const&) {
      static_assert(Size == kVector);
      return values[column];
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread_idx,
                                    ProblemShape problem_shape) {
    auto coordinates = visited_coordinates<ThreadMap>(tile, thread_idx, problem_shape);
    return Callbacks<decltype(coordinates)>(coordinates, cute::get<1>(problem_shape),
                                            this->params_ptr);
  }
};

// The source at m, read when its row is visited.
template <class ThreadMap, class Source>
struct OpenCol : Leaf<Source> {
  using Leaf<Source>::Leaf;

  template <class Coordinates>
  struct Callbacks : threadblock::EmptyCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int m, Source const* source)
        : coordinates(coordinates), m(m), source(source) {}

    Coordinates coordinates;
    int m;
    Source const* source;

    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int iteration, int row, int, int,
                              cutlass::Array<Element, Size> const&) {
      int const at = cute::get<0>(coordinates(0, 0, row, iteration));
      cutlass::Array<float, Size> values;
      values.fill(read(*source, min(at, m - 1)));
      return values;
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread_idx,
                                    ProblemShape problem_shape) {
    auto coordinates = visited_coordinates<ThreadMap>(tile, thread_idx, problem_shape);
    return Callbacks<decltype(coordinates)>(coordinates, cute::get<0>(problem_shape),
                                            this->params_ptr);
  }
};

// The source at (m, n).
template <class ThreadMap, class Source>
struct OpenElements : Leaf<Source> {
  using Leaf<Source>::Leaf;

  template <class Coordinates>
  struct Callbacks : threadblock::EmptyCallbacks {
    static constexpr int kVector = ThreadMap::kElementsPerAccess;
    static constexpr int kColumns = decltype(cute::size<1>(cute::declval<Coordinates>()))::value;
    static constexpr int kRows = decltype(cute::size<2>(cute::declval<Coordinates>()))::value;

    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, int m, int n, Source const* source)
        : coordinates(coordinates), m(m), n(n), source(source) {}

    Coordinates coordinates;
    int m, n;
    Source const* source;
    cutlass::Array<float, kVector> values[kRows][kColumns];

    CUTLASS_DEVICE void begin_step(int iteration) {
      CUTLASS_PRAGMA_UNROLL
      for (int row = 0; row < kRows; ++row) {
        CUTLASS_PRAGMA_UNROLL
        for (int column = 0; column < kColumns; ++column) {
          auto const first = coordinates(0, column, row, iteration);
          int const at_m = cute::get<0>(first), at_n = cute::get<1>(first);
          CUTLASS_PRAGMA_UNROLL
          for (int i = 0; i < kVector; ++i) {
            values[row][column][i] = source->load(at_m, at_n + i, at_m < m && at_n + i < n);
          }
        }
      }
    }

    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int, int row, int column, int, cutlass::Array<Element, Size> const&) {
      static_assert(Size == kVector);
      return values[row][column];
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

// One value, read once per tile.
template <class Source>
struct Number : Leaf<Source> {
  using Leaf<Source>::Leaf;

  struct Callbacks : threadblock::EmptyCallbacks {
    CUTLASS_DEVICE explicit Callbacks(float value) : value(value) {}

    float value;

    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int, int, int, int, cutlass::Array<Element, Size> const&) {
      cutlass::Array<float, Size> values;
      values.fill(value);
      return values;
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord, int, ProblemShape) {
    return Callbacks(read(*this->params_ptr, 0));
  }
};

// Where each output stands.
template <class ThreadMap>
struct PlacesOf : Leaf<OpenOutputs> {
  using Leaf<OpenOutputs>::Leaf;

  template <class Coordinates>
  struct Callbacks : threadblock::EmptyCallbacks {
    CUTLASS_DEVICE Callbacks(Coordinates const& coordinates, OpenOutputs const* outputs)
        : coordinates(coordinates), outputs(outputs) {}

    Coordinates coordinates;
    OpenOutputs const* outputs;

    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int iteration, int row, int column, int,
                              cutlass::Array<Element, Size> const&) {
      auto const first = coordinates(0, column, row, iteration);
      int const m = cute::get<0>(first), n = cute::get<1>(first);
      cutlass::Array<OpenOutputs::Place, Size> places;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Size; ++i) places[i] = {outputs, m, n + i};
      return places;
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread_idx,
                                    ProblemShape problem_shape) {
    auto coordinates = visited_coordinates<ThreadMap>(tile, thread_idx, problem_shape);
    return Callbacks<decltype(coordinates)>(coordinates, this->params_ptr);
  }
};

template <class ThreadMap, int kSlot>
struct NodeOf<ThreadMap, cutlass_fused::Row<OpenVector<kSlot>>> {
  using type = OpenRow<ThreadMap, OpenVector<kSlot>>;
  static OpenVector<kSlot> arguments(OpenVector<kSlot> const& source) { return source; }
};
template <class ThreadMap, int kSlot>
struct NodeOf<ThreadMap, cutlass_fused::Col<OpenVector<kSlot>>> {
  using type = OpenCol<ThreadMap, OpenVector<kSlot>>;
  static OpenVector<kSlot> arguments(OpenVector<kSlot> const& source) { return source; }
};
template <class ThreadMap, int kSlot>
struct NodeOf<ThreadMap, cutlass_fused::Tile<OpenTile<kSlot>>> {
  using type = OpenElements<ThreadMap, OpenTile<kSlot>>;
  static OpenTile<kSlot> arguments(OpenTile<kSlot> const& source) { return source; }
};
template <class ThreadMap, class Source>
struct NodeOf<ThreadMap, cutlass_fused::Number<Source>> {
  using type = Number<Source>;
  static Source arguments(Source const& source) { return source; }
};
template <class ThreadMap>
struct NodeOf<ThreadMap, Places> {
  using type = PlacesOf<ThreadMap>;
  static OpenOutputs arguments(OpenOutputs const& outputs) { return outputs; }
};

}  // namespace cutlass_fused::sm80
