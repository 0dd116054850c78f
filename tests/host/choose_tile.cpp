// Reads lines "<table> <m> <n> <k> <element bytes> <SMs> <shared memory>" and prints, for each, the
// tile that the heuristic chooses and its cost against every other tile of the table.
#include <iostream>
#include <string>

#include "cutlass_fused/gemm/heuristic.hpp"

using namespace cutlass_fused;

template <class Tiles>
void answer(Problem const& problem, Device const& device) {
  int const chosen = choose_tile<Tiles>(problem, device);
  std::cout << (chosen < 0 ? "none" : Tiles::kShapes[chosen].name());
  for (TileShape const& tile : Tiles::kShapes) {
    std::cout << ' ' << tile.name() << '=' << tile_cost(tile, problem, device) << '/'
              << tile.shared_memory();
  }
  std::cout << std::endl;
}

int main() {
  std::string table;
  Problem problem;
  Device device{};
  while (std::cin >> table >> problem.m >> problem.n >> problem.k >> problem.element_bytes >>
         device.sm_count >> device.shared_memory) {
    problem.engine = table == "split"  ? Engine::kTf32x3
                     : table == "tf32" ? Engine::kTf32
                                       : Engine::kPlain;
    if (table == "split") {
      answer<TilesSm80Split>(problem, device);
    } else {
      answer<TilesSm80>(problem, device);
    }
  }
}
