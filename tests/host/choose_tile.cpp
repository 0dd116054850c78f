// Reads lines "<math> <m> <n> <k> <SMs> <shared memory>" and prints, for each, the tile that the
// heuristic chooses and its cost against every other tile of the table.
#include <iostream>
#include <string>

#include "cutlass_fused/plan/describe.hpp"

using namespace cutlass_fused;

void answer(Problem const& problem, Device const& device) {
  TilesOfMathSm80 const tiles = tiles_sm80(problem.math);
  ProductPlan const chosen = choose_cheapest(spec_sm80(), problem, device);
  std::cout << describe_kernel(chosen, problem.math);
  for (int i = 0; i < tiles.count; ++i) {
    TileShape const& tile = tiles.shapes[i];
    std::cout << ' ' << tile.name() << '=' << tile_cost(tile, problem, device) << '/'
              << tile.shared_memory();
  }
  std::cout << std::endl;
}

int main() {
  std::string math;
  int64_t m, n, k;
  Device device{};
  while (std::cin >> math >> m >> n >> k >> device.sm_count >> device.shared_memory) {
    MathId const row = math == "fp16x3"   ? MathId::kFp16x3
                       : math == "fp16x1" ? MathId::kFp16x1
                                          : MathId::kBf16;
    answer({row, m, n, k, spec_of(row).type}, device);
  }
}
