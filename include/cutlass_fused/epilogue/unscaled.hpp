// Unscaled<Epilogue>: an epilogue behind a product of rows that were scaled by powers of two
// (split_rows.hpp), which it takes back first:
//
//   y = epilogue(acc * (h_x[m] * h_w[n])^2)
//
// Twice a factor between 2^-162 and 2^114 instead of its square once: where the square overflows,
// or is no normal number, acc may still bring the result back into fp32's range.
//
// NaN where acc is too small for what its rows lost.
#pragma once

#include <cmath>
#include <limits>

#include "cutlass_fused/epilogue/operands.hpp"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"

namespace cutlass_fused {

// Without values they are all 1, of rows that lost nothing: those of a weight that was split along
// the other side, whose scales stand in the other operand (split_rows.hpp).
struct RowScales {
  RowScale const* values;

  using Raw = float;
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t i) const {
    return values != nullptr ? values[i].packed : 1.0f;
  }
  CUTLASS_FUSED_HOST_DEVICE float convert(Raw raw) const { return raw; }
};

template <class Tree>
struct UnscaledTree;
template <class Fn, class... Operands>
struct UnscaledTree<Tree<Compute<Fn>, Acc, Operands...>> {
  struct UnscaledFn {
    template <class... Values>
    CUTLASS_FUSED_HOST_DEVICE float operator()(float acc, float packed_x, float packed_weight,
                                               Values... values) const {
      RowScale const x{packed_x}, weight{packed_weight};
      float const h = x.h() * weight.h(), least = x.least() + weight.least();
      bool const lost = least > 0.0f && !(fabsf(acc) > least);
      return Fn{}(lost ? std::numeric_limits<float>::quiet_NaN() : acc * h * h, values...);
    }
  };
  using type = Tree<Compute<UnscaledFn>, Acc, Col<RowScales>, Row<RowScales>, Operands...>;
};

template <class Epilogue>
struct Unscaled {
  static constexpr auto& kName = Epilogue::kName;
  using Tree = typename UnscaledTree<typename Epilogue::Tree>::type;

  struct Args {
    typename Epilogue::Args epilogue;
    RowScales x, weight;

    auto operands() const {
      return std::apply(
          [&](Empty acc, auto const&... others) {
            return std::make_tuple(acc, x, weight, others...);
          },
          epilogue.operands());
    }
  };
};

}  // namespace cutlass_fused
