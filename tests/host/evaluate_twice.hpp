// evaluate_twice<Epilogue>(args, acc): the arithmetic of the kernels, run on the host.
#pragma once

#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/epilogue/elements/evaluate.hpp"
#include "read_vector.hpp"

using namespace cutlass_fused;

// The result of evaluate(), which must be that of a kernel that keeps the operands of its columns:
// infinite where the two differ.
template <class Epilogue>
float evaluate_twice(typename Epilogue::Args const& args, float acc) {
  using Operands = Columns<typename Epilogue::Tree>;
  constexpr int kStride = 3;
  float values[(Operands::kRows + 1) * kStride] = {};
  auto const packed = Evaluator<typename Epilogue::Tree>::pack(args.operands());
  Operands::load(packed, kColumn, values, kStride);
  float const y = evaluate<Epilogue>(args, acc, 0, kColumn);
  float const kept = Operands::apply(packed, values, kStride, acc, 0, kColumn,
                                     Operands::fetch(packed, 0, kColumn));
  return y == kept || (std::isnan(y) && std::isnan(kept)) ? y : INFINITY;
}
