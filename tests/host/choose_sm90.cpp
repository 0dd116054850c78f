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

#include "cutlass_fused/plan/choose_product.hpp"
#include "cutlass_fused/plan/tile_names.hpp"

using namespace cutlass_fused;

TileOverride const* forced = nullptr;

ArchSet archs_of(int code) {
  ArchSet const archs = ArchSet().with(ArchId::kSm80);
  return code == 90 ? archs.with(ArchId::kSm90) : archs;
}

// "none": it is left to SM80 kernels. They refuse a forced SM90 tile.
std::string format_choice(ProductPlan const& product) {
  if (product.arch != ArchId::kSm90) return "none";
  if (product.by == ProductBy::kUnknownTile) return "refused";
  if (product.by != ProductBy::kTile) return "wrong";
  return spec_sm90().name_tile(MathId::kBf16, product.tile) + "@" + product.raster.name();
}

void choose(std::istream& in) {
  GemmArgs gemm{};
  uintptr_t x, weight, y;
  int32_t type;
  Device device{};
  in >> gemm.m >> gemm.n >> gemm.k >> x >> gemm.ldx >> weight >> gemm.ldw >> y >> gemm.ldy >>
      type >> device.code >> device.sm_count;
  device.archs = archs_of(device.code);
  gemm.x = reinterpret_cast<void const*>(x);
  gemm.weight = reinterpret_cast<void const*>(weight);
  gemm.y = reinterpret_cast<void*>(y);
  gemm.y_type = DataType(type);
  Problem const problem = make_problem(MathId::kBf16, gemm);
  std::cout << format_choice(choose_newest(problem, device, {forced, nullptr, {}}));
  ArchSpec const& arch = spec_sm90();
  for (int i = 0; i < arch.count(MathId::kBf16); ++i) {
    if (!arch.serves(i, problem, device)) continue;
    int64_t const cost = arch.estimate(i, problem, device).cost;
    std::cout << ' ' << arch.name_tile(MathId::kBf16, i) << '='
              << cost + arch.surcharge(i, problem, cost, device);
  }
}

void force(std::istream& in) {
  static TileOverride named;
  named = {};
  std::string name, raster;
  in >> name >> raster;
  find_any_tile([&](ArchSpec const& arch, MathId math, int i) {
    named.arch = arch.id;
    named.tile = name;
    return arch.name_tile(math, i) == name;
  });
  named.has_raster = parse_raster(raster, named.raster);
  forced = name.empty() ? nullptr : &named;
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
      for (auto const& tile : sm90::Tiles::kShapes) std::cout << tile.name() << ' ';
    }
    std::cout << std::endl;
  }
}
