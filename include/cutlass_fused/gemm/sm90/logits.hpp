// Registers products of 16-bit matrices whose fp32 results a softmax with a 16-bit result is to
// read. They are no results of a call: the sums need not be better than those of a 16-bit one,
// which are not added in fp32 from time to time and therefore have room for the largest tile.
// Included by generated files only.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "cutlass_fused/gemm/sm90/launch.hpp"
#include "cutlass_fused/gemm/sm90_batch_norm/tiles.hpp"

namespace cutlass_fused {

template <class Math>
struct WithLogits : Math {
  static constexpr DataType kOut = DataType::kFloat32;
};

template <class Math>
bool register_logits_sm90() {
  constexpr int kTile = find_tile<typename TilesSm90For<Math>::type, LogitsTile>();
  register_tile_sm90<LogitsTile, WithLogits<Math>, ScaleBatchNorm>(names::kLogits, kTile);
  return true;
}

#define CUTLASS_FUSED_REGISTER_LOGITS_SM90(Math) \
  CUTLASS_FUSED_REGISTER(register_logits_sm90<Math>())

}  // namespace cutlass_fused
