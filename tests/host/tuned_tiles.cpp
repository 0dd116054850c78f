// Reads commands, a line each, and prints the answer to each:
//   key <name>                       the name of the key that was read from it, or "none"
//   tune <device> <tile> <key>       makes it the product's tile; "-" removes it
//   force <tile>                     as force_tile does; "-" ends it
//   choose <math> <m> <n> <k> <type of y> <device> <code> <shared memory> <x> <ld> <copied>
//                                    the kernel for a product whose x lies at this address, and the
//                                    candidates for it; rows of x and weight are ld apart, and are
//                                    copies if the last number is 1
//   race <rounds>                    looks up one product while others are added and removed, and
//                                    prints how often another tile was found than its own
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

#include "cutlass_fused/plan/describe.hpp"
#include "cutlass_fused/plan/tile_names.hpp"
#include "cutlass_fused/plan/tuned_tiles.hpp"

using namespace cutlass_fused;

std::string read_rest(std::istream& in) {
  std::string rest;
  std::getline(in >> std::ws, rest);
  return rest;
}

std::string tune(std::istream& in) {
  int device;
  std::string tile;
  ProductKey key;
  in >> device >> tile;
  if (!parse_key(read_rest(in), device, key)) return "no key";
  TileOverride const* const named = tile == "-" ? nullptr : find_named_tile(tile);
  if (tile != "-" && named == nullptr) return "no tile";
  tuned_tiles().set(key, named);
  return "tuned";
}

std::string choose(MathId math, std::istream& in) {
  GemmArgs gemm{};
  Device device{};
  uintptr_t x;
  int32_t type;
  bool copied;
  in >> gemm.m >> gemm.n >> gemm.k >> type >> device.index >> device.code >> device.shared_memory >>
      x >> gemm.ldx >> copied;
  device.sm_count = 132;
  device.archs = ArchSet().with(ArchId::kSm80);
  if (device.code == 90) device.archs = device.archs.with(ArchId::kSm90);
  gemm.x = reinterpret_cast<void const*>(x);
  gemm.ldw = gemm.ldx;
  gemm.ldy = gemm.n;
  gemm.y_type = DataType(type);
  Problem const problem = make_problem(math, gemm);
  Overrides const overrides = find_overrides(problem, device);
  ProductPlan const product = choose_product(problem, device, overrides, copied);
  bool const other = product.by == ProductBy::kNarrow4 || product.by == ProductBy::kNarrow2 ||
                     product.by == ProductBy::kSimt;
  std::string text = spec_of(product.arch).name;
  text += " " + (other ? "other" : describe_kernel(product, math));
  for (auto const& name : list_candidates(product, problem, device, overrides, copied)) {
    text += " " + name;
  }
  return text;
}

ProductKey make_key(int64_t m) {
  return make_key(Problem{MathId::kBf16, m, 8, 8, DataType::kBFloat16}, Device{});
}

// Rehashing moves the entries while they are read.
int race(int rounds) {
  TileOverride const* const own = find_named_tile(TilesSm80::kShapes[0].name());
  TileOverride const* const other = find_named_tile(TilesSm80::kShapes[1].name());
  tuned_tiles().set(make_key(1), own);
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  auto const read = [&] {
    while (!done) wrong += tuned_tiles().find(make_key(1)) != own;
  };
  auto const write = [&](int64_t first) {
    for (int round = 0; round < rounds; ++round) {
      for (int64_t m = first; m < first + 200; ++m) tuned_tiles().set(make_key(m), other);
      for (int64_t m = first; m < first + 200; ++m) tuned_tiles().set(make_key(m), nullptr);
    }
  };
  std::thread readers[] = {std::thread(read), std::thread(read)};
  std::thread writers[] = {std::thread(write, 1000), std::thread(write, 2000)};
  for (std::thread& writer : writers) writer.join();
  done = true;
  for (std::thread& reader : readers) reader.join();
  tuned_tiles().set(make_key(1), nullptr);
  return wrong + TunedTiles::any();
}

int main() {
  std::string line, command, word;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    in >> command;
    ProductKey key;
    if (command == "key") {
      std::cout << (parse_key(read_rest(in), 0, key) ? key.name() : "none");
    } else if (command == "tune") {
      std::cout << tune(in);
    } else if (command == "force") {
      in >> word;
      forced_tile = word == "-" ? nullptr : find_named_tile(word);
    } else if (command == "choose") {
      in >> word;
      std::cout << choose(word == "bf16"     ? MathId::kBf16
                          : word == "fp16x1" ? MathId::kFp16x1
                          : word == "fp16x3" ? MathId::kFp16x3
                                             : MathId::kF16,
                          in);
    } else if (command == "race") {
      int rounds;
      in >> rounds;
      std::cout << race(rounds);
    }
    std::cout << std::endl;
  }
}
