// evaluate<Epilogue>(operands, acc, m, n): the epilogue of one element, on the host or in a kernel
// that is not built on a visitor tree. The same functor and the same operands as the fused kernels.
#pragma once

#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused {

// The operands of an epilogue, as plain values that a kernel parameter can hold.
template <class Operand, class... Rest>
struct Pack {
  typename OperandArgs<Operand>::type first;
  Pack<Rest...> rest;
};
template <class Operand>
struct Pack<Operand> {
  typename OperandArgs<Operand>::type first;
};

template <class T>
struct Evaluator;
template <class Fn, class... Operands>
struct Evaluator<Tree<Compute<Fn>, Operands...>> {
  using Arguments = Pack<Operands...>;

  template <class Tuple>
  static Arguments pack(Tuple const& operands) {
    return pack_from<0, Operands...>(operands);
  }

  CUTLASS_FUSED_HOST_DEVICE static float apply(Arguments const& args, float acc, int64_t m,
                                               int64_t n) {
    return collect<Operands...>(args, acc, m, n);
  }

 private:
  template <int I, class Operand, class... Rest, class Tuple>
  static Pack<Operand, Rest...> pack_from(Tuple const& operands) {
    if constexpr (sizeof...(Rest) == 0) {
      return {std::get<I>(operands)};
    } else {
      return {std::get<I>(operands), pack_from<I + 1, Rest...>(operands)};
    }
  }

  template <class Operand, class... Rest, class... Values>
  CUTLASS_FUSED_HOST_DEVICE static float collect(Pack<Operand, Rest...> const& args, float acc,
                                                 int64_t m, int64_t n, Values... values) {
    auto const value = OperandValue<Operand>::get(args.first, acc, m, n);
    if constexpr (sizeof...(Rest) == 0) {
      return Fn{}(values..., value);
    } else {
      return collect<Rest...>(args.rest, acc, m, n, values..., value);
    }
  }
};

template <class Epilogue>
float evaluate(typename Epilogue::Args const& args, float acc, int64_t m, int64_t n) {
  using Eval = Evaluator<typename Epilogue::Tree>;
  return Eval::apply(Eval::pack(args.operands()), acc, m, n);
}

}  // namespace cutlass_fused
