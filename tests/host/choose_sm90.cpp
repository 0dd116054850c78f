// Reads commands, a line each, and prints the answer to each:
//   tiles               the names in the table
//   raster <name>       the raster that a name stands for, or "none"
//   force <tile>        makes every later answer that tile's, as force_tile does, with a raster
//                       where one follows; no name ends it
//   choose <m> <n> <k> <x> <ldx> <weight> <ldw> <y> <ldy> <type of y> <code> <SMs>
//                       the kernel for a bf16 product, whose matrices lie at these addresses, and
//                       the cost of every tile that can serve it
#include <iostream>
#include <sstream>
#include <string>

#include "cutlass_fused/plan/choice_sm90.hpp"

using namespace cutlass_fused;

std::string format_choice(Choice const& choice) {
  if (choice.kind == KernelKind::kNone) return "none";
  if (choice.kind == KernelKind::kUnknownTile) return "refused";
  if (choice.kind != KernelKind::kAligned) return "wrong";
  return sm90::Tiles::kShapes[choice.tile].name() + "@" + choice.raster.name();
}

void choose(std::istream& in) {
  GemmArgs gemm{};
  uintptr_t x, weight, y;
  int32_t type;
  Device device{};
  in >> gemm.m >> gemm.n >> gemm.k >> x >> gemm.ldx >> weight >> gemm.ldw >> y >> gemm.ldy >>
      type >> device.code >> device.sm_count;
  gemm.x = reinterpret_cast<void const*>(x);
  gemm.weight = reinterpret_cast<void const*>(weight);
  gemm.y = reinterpret_cast<void*>(y);
  gemm.y_type = DataType(type);
  std::cout << format_choice(choose_kernel_sm90<Bf16>(gemm, device));
  for (int i = 0; i < sm90::Tiles::kSize; ++i) {
    TileShapeSm90 const& tile = sm90::Tiles::kShapes[i];
    if (!can_serve(tile, gemm, Bf16::kOut)) continue;
    Problem const problem{gemm.m, gemm.n, gemm.k, size_of(Bf16::kIn), Bf16::kEngine};
    int64_t const cost = estimate_tile<Bf16>(i, problem, device).cost;
    std::cout << ' ' << tile.name() << '=' << cost + cost_of_power(tile, problem, cost);
  }
}

void force(std::istream& in) {
  static ForcedTile forced;
  forced = {};
  std::string name, raster;
  in >> name >> raster;
  for (TileShapeSm90 const& tile : sm90::Tiles::kShapes) {
    if (tile.name() == name) forced.sm90 = &tile;
  }
  for (TileShape const& tile : TilesSm80::kShapes) {
    if (tile.name() == name) forced.sm80 = &tile;
  }
  forced.has_raster = parse_raster(raster, forced.raster);
  forced_tile = name.empty() ? nullptr : &forced;
}

int main() {
  std::string line, command;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    in >> command;
    if (command == "choose") {
      choose(in);
    } else if (command == "force") {
      force(in);
    } else if (command == "raster") {
      std::string name;
      Raster raster;
      in >> name;
      std::cout << (parse_raster(name, raster) ? raster.name() : "none");
    } else if (command == "tiles") {
      for (TileShapeSm90 const& tile : sm90::Tiles::kShapes) std::cout << tile.name() << ' ';
    }
    std::cout << std::endl;
  }
}
