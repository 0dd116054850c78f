// The words an epilogue is written in. An epilogue is
//
//   Tree<Compute<Fn>, Operand...>      y = Fn(operand...)
//
// where each operand is one of the tags below and Fn is a functor over fp32 numbers with one
// parameter per operand. visitors/nodes_sm80.hpp spells the tags as CUTLASS 2.x visitor nodes, and
// evaluate() computes them for one element, on the host too.
#pragma once

#include <tuple>
#include <utility>

#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

struct Acc {};  // the accumulator, acc[m, n]
template <class Source = Vector>
struct Row {};  // one value per column: read(source, n)
template <class Source = Vector>
struct Col {};  // one value per row: read(source, m)
template <class Source = StridedMatrix>
struct Tile {};  // one value per output: source(m, n)
template <class T = float>
struct Scalar {};  // one value
template <class Fn>
struct Compute {};  // Fn applied to the operands
template <class Node, class... Operands>
struct Tree {};

// A source has a type Raw, fetch(i), which asks for what the ith value depends on, and
// convert(raw), which derives the value. Code that needs several values asks for all of them first:
// one after another, six values cost a tile six ways to L2, which is 2 us.
template <class Source>
CUTLASS_FUSED_HOST_DEVICE float read(Source const& source, int64_t i) {
  return source.convert(source.fetch(i));
}

// What the host hands to an operand: the source itself, a number, or nothing.
struct Empty {};
template <class Operand>
struct OperandArgs;
template <>
struct OperandArgs<Acc> {
  using type = Empty;
};
template <class Source>
struct OperandArgs<Row<Source>> {
  using type = Source;
};
template <class Source>
struct OperandArgs<Col<Source>> {
  using type = Source;
};
template <class Source>
struct OperandArgs<Tile<Source>> {
  using type = Source;
};
template <class T>
struct OperandArgs<Scalar<T>> {
  using type = T;
};

template <class T>
struct TreeArgs;
template <class Node, class... Operands>
struct TreeArgs<Tree<Node, Operands...>> {
  using type = std::tuple<typename OperandArgs<Operands>::type...>;
};

// The value of one operand at (m, n).
template <class Operand>
struct OperandValue;
template <>
struct OperandValue<Acc> {
  CUTLASS_FUSED_HOST_DEVICE static float get(Empty, float acc, int64_t, int64_t) { return acc; }
};
template <class Source>
struct OperandValue<Row<Source>> {
  CUTLASS_FUSED_HOST_DEVICE static float get(Source const& source, float, int64_t, int64_t n) {
    return read(source, n);
  }
};
template <class Source>
struct OperandValue<Col<Source>> {
  CUTLASS_FUSED_HOST_DEVICE static float get(Source const& source, float, int64_t m, int64_t) {
    return read(source, m);
  }
};
template <class Source>
struct OperandValue<Tile<Source>> {
  CUTLASS_FUSED_HOST_DEVICE static float get(Source const& source, float, int64_t m, int64_t n) {
    return source(m, n);
  }
};
template <class T>
struct OperandValue<Scalar<T>> {
  CUTLASS_FUSED_HOST_DEVICE static float get(T value, float, int64_t, int64_t) { return value; }
};

}  // namespace cutlass_fused
