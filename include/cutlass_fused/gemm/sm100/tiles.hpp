// THE table of SM100 tiles: a skeleton of one bf16 tile, that compiles and that no GPU has run.
// Plain integers, no CUTLASS.
#pragma once

#include <string>

#include "cutlass_fused/common/math.hpp"

namespace cutlass_fused {

// A tile of kM x kN outputs by one SM; each stage holds kBytesK bytes of K of both operands.
template <int M, int N, int BytesK>
struct TileSm100 {
  static constexpr int kM = M;            // 64 or 128
  static constexpr int kN = N;            // 16 to 256
  static constexpr int kBytesK = BytesK;  // 128 or more

  static std::string name() {
    return std::to_string(M) + "x" + std::to_string(N) + "x" + std::to_string(BytesK) + "B.sm100";
  }
};

namespace sm100 {
using Tile = TileSm100<128, 128, 128>;
}  // namespace sm100

}  // namespace cutlass_fused
