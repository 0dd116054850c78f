// Registers SM80 products that find the statistics of their result. Included by generated files
// only.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/batch_norm.hpp"
#include "cutlass_fused/gemm/sm80/launch.hpp"
#include "cutlass_fused/gemm/sm80/statistics_epilogue.hpp"

namespace cutlass_fused {

template <class Epilogue>
struct UnpackArgs<StatisticsSm80<Epilogue>> {
  static typename StatisticsSm80<Epilogue>::Args unpack(ProductLaunch const& call) {
    return {UnpackArgs<Epilogue>::unpack(call), call.parts};
  }
};

template <class Math, class... Rows>
bool register_statistics_sm80(TileList<Rows...>) {
  int index = 0;
  auto const add = [&](auto tile) {
    using Tile = decltype(tile);
    if constexpr (can_find_statistics(Tile::kSchedule, Tile::kM)) {
      register_tile_sm80<Tile, Math, StatisticsSm80<EpilogueOfZ<Math>>, 16>(names::kStatistics,
                                                                            index);
    }
    ++index;
  };
  (add(typename Rows::type{}), ...);
  return true;
}

#define CUTLASS_FUSED_REGISTER_STATISTICS_SM80(Math) \
  CUTLASS_FUSED_REGISTER(register_statistics_sm80<Math>(TilesSm80For<Math>::type{}))

}  // namespace cutlass_fused
