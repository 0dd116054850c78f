// The epilogue of a kernel that keeps the Row operands of its columns in shared memory, as fp32.
// It takes the functor and the operands that the visitor trees take.
#pragma once

#include "cutlass_fused/epilogue/elements/evaluate.hpp"

namespace cutlass_fused {

template <class Operand>
constexpr bool is_row = false;
template <class Source>
constexpr bool is_row<Row<Source>> = true;

template <class T>
struct Columns;
template <class Fn, class... Operands>
struct Columns<Tree<Compute<Fn>, Operands...>> {
  using Arguments = Pack<Operands...>;
  static constexpr int kRows = (int(is_row<Operands>) + ... + 0);

  // values[i * stride] = Row operand i at column n
  CUTLASS_FUSED_HOST_DEVICE static void load(Arguments const& args, int64_t n, float* values,
                                             int stride) {
    int64_t const columns[] = {n};
    load(args, columns, values, stride);
  }

  // values[i * stride + c] = Row operand i at column n[c]
  template <int kColumns>
  CUTLASS_FUSED_HOST_DEVICE static void load(Arguments const& args, int64_t const (&n)[kColumns],
                                             float* values, int stride) {
    load_rows<kColumns, Operands...>(args, n, values, stride);
  }

  // y at row m, of the column whose Row operands were loaded
  CUTLASS_FUSED_HOST_DEVICE static float apply(Arguments const& args, float const* values,
                                               int stride, float acc, int64_t m) {
    return collect<Operands...>(args, values, stride, acc, m);
  }

 private:
  // Converts what it fetched behind what all others fetch.
  template <int kColumns, class Operand, class... Rest>
  CUTLASS_FUSED_HOST_DEVICE static void load_rows(Pack<Operand, Rest...> const& args,
                                                  int64_t const (&n)[kColumns], float* values,
                                                  int stride) {
    auto const load_others = [&](float* to) {
      if constexpr (sizeof...(Rest) > 0) load_rows<kColumns, Rest...>(args.rest, n, to, stride);
    };
    if constexpr (is_row<Operand>) {
      typename decltype(args.first)::Raw raw[kColumns];
      for (int c = 0; c < kColumns; ++c) raw[c] = args.first.fetch(n[c]);
      load_others(values + stride);
      for (int c = 0; c < kColumns; ++c) values[c] = args.first.convert(raw[c]);
    } else {
      load_others(values);
    }
  }

  template <class Operand, class... Rest, class... Values>
  CUTLASS_FUSED_HOST_DEVICE static float collect(Pack<Operand, Rest...> const& args,
                                                 float const* values, int stride, float acc,
                                                 int64_t m, Values... so_far) {
    float value;
    if constexpr (is_row<Operand>) {
      value = *values;
      values += stride;
    } else {
      value = OperandValue<Operand>::get(args.first, acc, m, 0);
    }
    if constexpr (sizeof...(Rest) == 0) {
      return Fn{}(so_far..., value);
    } else {
      return collect<Rest...>(args.rest, values, stride, acc, m, so_far..., value);
    }
  }
};

}  // namespace cutlass_fused
