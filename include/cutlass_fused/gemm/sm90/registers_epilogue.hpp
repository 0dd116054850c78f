// Epilogues that do something with a whole tile of accumulators in registers before CUTLASS's
// collective writes them: InRegisters<Stage> is the epilogue, of which Stage says what.
#pragma once

#include "cutlass_fused/gemm/sm90/kernel.hpp"

namespace cutlass_fused {

// Stage has kName, Args, and Collective<Built>, which derives from the RegistersEpilogue below.
template <class Stage>
struct InRegisters {
  static constexpr auto& kName = Stage::kName;

  struct Fn {
    CUTLASS_FUSED_HOST_DEVICE float operator()(float y) const { return y; }
  };
  using Tree = cutlass_fused::Tree<Compute<Fn>, Acc>;  // writes what the stage left

  struct Args : Stage::Args {
    auto operands() const { return std::make_tuple(Empty{}); }
  };
};

// CUTLASS's collective, with arguments of our own.
template <class Built, class Args>
struct RegistersEpilogue : Built {
  struct Params : Built::Params {
    Args args;
  };
  using Storage = typename Built::TensorStorage;

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(ProblemShape const& problem_shape,
                                                  typename Built::Arguments const& args,
                                                  void* workspace) {
    return {Built::to_underlying_arguments(problem_shape, args, workspace), {}};
  }

  CUTLASS_DEVICE RegistersEpilogue(Params const& params, Storage& storage)
      : Built(params, storage), args(params.args) {}

 protected:
  Args const& args;
};

template <class Stage, class Built>
struct CollectiveEpilogueOf<InRegisters<Stage>, Built> {
  using type = typename Stage::template Collective<Built>;
};

template <class Tile, class Math, class Stage>
struct GemmSm90For<Tile, Math, InRegisters<Stage>> {
  static_assert(Tile::kOperands == Operands::kSwapped && Tile::kOutput == Output::kTma);
  using Collective = CollectiveGemmSm90<Tile, Math, InRegisters<Stage>>;

  struct type : Collective {
    using typename Collective::Params;

    static void set_epilogue(Params& params, GemmArgs const& gemm,
                             typename InRegisters<Stage>::Args const& args) {
      Collective::set_epilogue(params, gemm, args);
      params.epilogue.args = args;
    }
  };
};

}  // namespace cutlass_fused
