// What a plan depends on, as words: the key under which it is kept for the next call.
#pragma once

#include <array>
#include <cstdint>

#include "cutlass_fused/plan/plan.hpp"

namespace cutlass_fused {

using PlanKey = std::array<int64_t, 15>;

// All members of what make_plan reads are named in the functions below: with one more of them these
// no longer compile.
inline int64_t pack_layout(Rows const& rows) {
  auto const& [ld, alignment, major] = rows;
  (void)ld;  // a word of its own
  return alignment | static_cast<int64_t>(major) << 8;
}

inline int64_t pack_flags(Tail const& tail) {
  auto const& [kind, epilogue, is_bare, keeps_z, has_centre, is_last, y_alignment] = tail;
  (void)epilogue;  // a word of its own
  return kind | keeps_z << 8 | has_centre << 9 | is_last << 10 | is_bare << 11 | y_alignment << 16;
}

// A GPU is known by its index, and an override by its address: it lives for ever.
inline PlanKey make_plan_key(Problem const& problem, Tail const& tail, Device const& device,
                             Overrides const& overrides) {
  auto const& [math, m, n, k, y_type, x, weight, y, batch, weight_split, copies_y] = problem;
  auto const& [forced, tuned, struck] = overrides;
  auto const address = [](TileOverride const* tile) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(tile));
  };
  return {static_cast<int64_t>(math) | static_cast<int64_t>(weight_split) << 16 |
              static_cast<int64_t>(y_type) << 32 | static_cast<int64_t>(copies_y) << 48,
          m,
          n,
          k,
          batch,
          x.ld,
          weight.ld,
          y.ld,
          pack_layout(x) | pack_layout(weight) << 16 | pack_layout(y) << 32,
          pack_flags(tail),
          static_cast<int64_t>(tail.epilogue.hash),
          device.index,
          address(forced),
          address(tuned),
          static_cast<int64_t>(struck.bits())};
}

}  // namespace cutlass_fused
