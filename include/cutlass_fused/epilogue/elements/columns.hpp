// The epilogue of a kernel that keeps the Row operands of its columns in shared memory, as fp32.
// It takes the functor and the operands that the visitor trees take.
#pragma once

#include "cutlass_fused/epilogue/elements/evaluate.hpp"

namespace cutlass_fused {

template <class Operand>
constexpr bool is_row = false;
template <class Source>
constexpr bool is_row<Row<Source>> = true;
template <class Operand>
constexpr bool is_tile = false;
template <class Source>
constexpr bool is_tile<Tile<Source>> = true;

// What kCount Tile operands are at one output. A kernel asks for those of several outputs before it
// uses one.
template <int kCount>
struct Fetched {
  float values[kCount];
};
template <>
struct Fetched<0> {};

template <class T>
struct Columns;
template <class Fn, class... Operands>
struct Columns<Tree<Compute<Fn>, Operands...>> {
  using Arguments = Pack<Operands...>;
  static constexpr int kRows = (int(is_row<Operands>) + ... + 0);
  static constexpr int kTiles = (int(is_tile<Operands>) + ... + 0);
  using Elements = Fetched<kTiles>;

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

  // The Tile operands at (m, n) of the bth product of a batch.
  CUTLASS_FUSED_HOST_DEVICE static Elements fetch(Arguments const& args, int64_t m, int64_t n,
                                                  int64_t b = 0) {
    Elements elements{};
    fetch_tiles<0, Operands...>(args, m, n, b, elements);
    return elements;
  }

  // y at (m, n), the column whose Row operands were loaded
  CUTLASS_FUSED_HOST_DEVICE static float apply(Arguments const& args, float const* values,
                                               int stride, float acc, int64_t m, int64_t n,
                                               Elements const& elements) {
    return collect<0, Operands...>(args, values, stride, acc, m, n, elements);
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

  template <int kTile, class Operand, class... Rest>
  CUTLASS_FUSED_HOST_DEVICE static void fetch_tiles(Pack<Operand, Rest...> const& args, int64_t m,
                                                    int64_t n, int64_t b, Elements& elements) {
    if constexpr (is_tile<Operand>) elements.values[kTile] = args.first(m, n, b);
    if constexpr (sizeof...(Rest) > 0) {
      fetch_tiles<kTile + int(is_tile<Operand>), Rest...>(args.rest, m, n, b, elements);
    }
  }

  // What the functor is handed for an operand: a number, of most. kTile: how many Tile operands
  // stand in front.
  template <int kTile, class Operand, class Argument>
  CUTLASS_FUSED_HOST_DEVICE static auto value_of(Argument const& arg, float const* values,
                                                 float acc, int64_t m, int64_t n,
                                                 Elements const& elements) {
    if constexpr (is_row<Operand>) {
      return *values;
    } else if constexpr (is_tile<Operand>) {
      return elements.values[kTile];
    } else {
      return OperandValue<Operand>::get(arg, acc, m, n);
    }
  }

  template <int kTile, class Operand, class... Rest, class... Values>
  CUTLASS_FUSED_HOST_DEVICE static float collect(Pack<Operand, Rest...> const& args,
                                                 float const* values, int stride, float acc,
                                                 int64_t m, int64_t n, Elements const& elements,
                                                 Values... so_far) {
    auto const value = value_of<kTile, Operand>(args.first, values, acc, m, n, elements);
    if constexpr (sizeof...(Rest) == 0) {
      return Fn{}(so_far..., value);
    } else {
      return collect<kTile + int(is_tile<Operand>), Rest...>(
          args.rest, values + (is_row<Operand> ? stride : 0), stride, acc, m, n, elements,
          so_far..., value);
    }
  }
};

}  // namespace cutlass_fused
