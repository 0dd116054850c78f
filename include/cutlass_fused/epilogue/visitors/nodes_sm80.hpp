// The words of operands.hpp as CUTLASS 2.x visitor nodes: Acc, Row, Col, Tile, Scalar, Compute,
// Tree.
//
// The leaves are our own. CUTLASS's VisitorRowBroadcast reads its vector in pieces of 16 bytes,
// which faults on a view with an odd storage offset, and fixes the vector's type at compile time;
// these read element by element, once per output tile, straight from the operand's source.
#pragma once

#include "cutlass/gemm/kernel/default_gemm_universal_with_visitor.h"
// visitors.hpp is not self-contained: the line above must come first.
#include "cutlass/epilogue/threadblock/fusion/visitors.hpp"
#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused::sm80 {

namespace threadblock = cutlass::epilogue::threadblock;

// What every leaf shares: its arguments are its parameters, it needs no memory.
template <class Value>
struct Leaf {
  using Arguments = Value;
  using Params = Value;
  struct SharedStorage {};

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(ProblemShape const&, Arguments const& args,
                                                  void*) {
    return args;
  }
  template <class ProblemShape>
  static size_t get_workspace_size(ProblemShape const&, Arguments const&) {
    return 0;
  }

  CUTLASS_HOST_DEVICE Leaf() {}
  CUTLASS_HOST_DEVICE Leaf(Params const& params, SharedStorage const&) : params_ptr(&params) {}

  Params const* params_ptr;
};

using Acc = threadblock::VisitorAccFetch;

// The (m, n) of every element that a thread visits, as
// (vector, column, row, iteration) with iteration = all of a thread map's outer loops.
template <class ThreadMap, class ProblemShape>
CUTLASS_DEVICE auto visited_coordinates(cutlass::gemm::GemmCoord tile, int thread_idx,
                                        ProblemShape problem_shape) {
  auto identity = cute::make_identity_tensor(problem_shape);
  return cute::group_modes<3, 6>(ThreadMap::partition(identity, thread_idx, tile));
}

// The source at n, read once per column and tile.
template <class ThreadMap, class Source>
struct Row : Leaf<Source> {
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
      CUTLASS_PRAGMA_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kVector; ++i) {
          int const at = cute::get<1>(coordinates(i, column, 0, 0));
          values[column][i] = at < n ? read(*source, at) : 0.0f;
        }
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
struct Col : Leaf<Source> {
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
      values.fill(at < m ? read(*source, at) : 0.0f);
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

// The source at (m, n): all that a step of the epilogue needs is asked for before the first is
// used.
template <class ThreadMap, class Source>
struct Elements : Leaf<Source> {
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
            bool const is_in = at_m < m && at_n + i < n;
            values[row][column][i] = is_in ? (*source)(at_m, at_n + i) : 0.0f;
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

template <class T>
struct Scalar : Leaf<T> {
  using Leaf<T>::Leaf;

  struct Callbacks : threadblock::EmptyCallbacks {
    CUTLASS_DEVICE explicit Callbacks(T value) : value(value) {}

    T value;

    template <class Element, int Size>
    CUTLASS_DEVICE auto visit(int, int, int, int, cutlass::Array<Element, Size> const&) {
      cutlass::Array<T, Size> values;
      values.fill(value);
      return values;
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord, int, ProblemShape) {
    return Callbacks(*this->params_ptr);
  }
};

// Fn applied to each element of the operands' fragments.
template <class Fn>
struct Compute : Leaf<Empty> {
  using Leaf<Empty>::Leaf;

  struct Callbacks : threadblock::EmptyCallbacks {
    template <class Element, int Size, class... Operands>
    CUTLASS_DEVICE auto visit(int, int, int, int, cutlass::Array<Element, Size> const&,
                              cutlass::Array<Operands, Size> const&... operands) {
      cutlass::Array<float, Size> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Size; ++i) result[i] = Fn{}(operands[i]...);
      return result;
    }
  };

  template <class ProblemShape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord, int, ProblemShape) {
    return Callbacks();
  }
};

// Maps a word of operands.hpp to its node.
template <class ThreadMap, class Word>
struct NodeOf;
template <class ThreadMap>
struct NodeOf<ThreadMap, cutlass_fused::Acc> {
  using type = Acc;
  static typename Acc::Arguments arguments(Empty) { return {}; }
};
template <class ThreadMap, class Source>
struct NodeOf<ThreadMap, cutlass_fused::Row<Source>> {
  using type = Row<ThreadMap, Source>;
  static Source arguments(Source const& source) { return source; }
};
template <class ThreadMap, class Source>
struct NodeOf<ThreadMap, cutlass_fused::Col<Source>> {
  using type = Col<ThreadMap, Source>;
  static Source arguments(Source const& source) { return source; }
};
template <class ThreadMap, class Source>
struct NodeOf<ThreadMap, cutlass_fused::Tile<Source>> {
  using type = Elements<ThreadMap, Source>;
  static Source arguments(Source const& source) { return source; }
};
template <class ThreadMap, class T>
struct NodeOf<ThreadMap, cutlass_fused::Scalar<T>> {
  using type = Scalar<T>;
  static T arguments(T value) { return value; }
};

template <class ThreadMap, class Word>
struct TreeOf;
template <class ThreadMap, class Fn, class... Operands>
struct TreeOf<ThreadMap, cutlass_fused::Tree<cutlass_fused::Compute<Fn>, Operands...>> {
  using type = threadblock::Sm80EVT<Compute<Fn>, typename NodeOf<ThreadMap, Operands>::type...>;

  template <class Tuple>
  static typename type::Arguments arguments(Tuple const& operands) {
    return arguments(operands, std::index_sequence_for<Operands...>());
  }

 private:
  // CUTLASS's order: the children, then the node. nvcc 12.4 drops the children where a lambda
  // expands both packs.
  template <class Tuple, size_t... kAt>
  static typename type::Arguments arguments(Tuple const& operands, std::index_sequence<kAt...>) {
    return {NodeOf<ThreadMap, Operands>::arguments(std::get<kAt>(operands))..., Empty{}};
  }
};

}  // namespace cutlass_fused::sm80
