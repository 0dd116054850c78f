// A product of 16-bit matrices whose fp32 results a softmax with a 16-bit result is to read. They
// are no results of a call: the sums need not be better than those of a 16-bit one, which are not
// added in fp32 from time to time and therefore have room for the largest tile.
#pragma once

#include "cutlass_fused/gemm/run.hpp"
#include "cutlass_fused/plan/choice_sm90.hpp"

namespace cutlass_fused {

template <class Math>
struct WithLogits : Math {
  static constexpr DataType kOut = DataType::kFloat32;
};

using LogitsTile =
    TileSm90<128, 256, 128, 2, 1, ScheduleSm90::kCooperative, Operands::kSwapped, Output::kTma>;

// By the estimates, against the tile that serves fp32 results otherwise.
template <class Math>
bool prefers_logits_tile(GemmArgs const& gemm, Device const& device) {
  static_assert(size_of(Math::kIn) == 2);
  constexpr int kTile = find_tile<typename TilesSm90For<Math>::type, LogitsTile>();
  if (gemm.y_type != DataType::kFloat32 || !tma_writes_rows(gemm, DataType::kFloat32)) return false;
  if (forced_tile.load(std::memory_order_acquire) != nullptr) return false;
  Choice const choice = choose_kernel_sm90<Math>(gemm, device);
  if (choice.kind != KernelKind::kAligned ||
      !can_count(TilesSm90For<Math>::type::kShapes[kTile], gemm)) {
    return false;
  }
  Problem const problem = make_problem<Math>(gemm);
  return estimate_tile<Math>(kTile, problem, device).cost <
         estimate_tile<Math>(choice.tile, problem, device).cost;
}

// Declared for ops, instantiated in generated files.
template <class Math, class Epilogue>
Status run_gemm_logits(GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                       Launch const& launch);

}  // namespace cutlass_fused
