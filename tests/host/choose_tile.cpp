// Reads lines "<math> <m> <n> <k> <SMs> <shared memory>" and prints, for each, the tile that the
// heuristic chooses and its cost against every other tile of the table.
#include <iostream>
#include <string>

#include "cutlass_fused/plan/heuristic.hpp"

using namespace cutlass_fused;

template <class Math>
void answer(GemmArgs const& gemm, Device const& device) {
  using Tiles = typename TilesSm80For<Math>::type;
  Problem const problem = make_problem<Math>(gemm);
  int const chosen = choose_tile<Tiles>(problem, device);
  std::cout << (chosen < 0 ? "none" : Tiles::kShapes[chosen].name());
  for (TileShape const& tile : Tiles::kShapes) {
    std::cout << ' ' << tile.name() << '=' << tile_cost(tile, problem, device) << '/'
              << tile.shared_memory();
  }
  std::cout << std::endl;
}

int main() {
  std::string math;
  GemmArgs gemm{};
  Device device{};
  while (std::cin >> math >> gemm.m >> gemm.n >> gemm.k >> device.sm_count >>
         device.shared_memory) {
    if (math == "fp16x3") {
      answer<Fp16x3>(gemm, device);
    } else if (math == "fp16x1") {
      answer<Fp16x1>(gemm, device);
    } else {
      answer<Bf16>(gemm, device);
    }
  }
}
