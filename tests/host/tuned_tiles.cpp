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

#include "cutlass_fused/plan/choose_kernel.hpp"
#include "cutlass_fused/plan/tile_names.hpp"

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
  ForcedTile const* const named = tile == "-" ? nullptr : find_named_tile(tile);
  if (tile != "-" && named == nullptr) return "no tile";
  tuned_tiles().set(key, named);
  return "tuned";
}

std::string format_kind(KernelKind kind) {
  return kind == KernelKind::kUnknownTile ? "refused"
         : kind == KernelKind::kNone      ? "none"
         : kind == KernelKind::kCublas    ? "cublas"
                                          : "other";
}

template <class Math>
std::string choose(std::istream& in) {
  GemmArgs gemm{};
  Device device{};
  uintptr_t x;
  int32_t type;
  bool copied;
  in >> gemm.m >> gemm.n >> gemm.k >> type >> device.index >> device.code >> device.shared_memory >>
      x >> gemm.ldx >> copied;
  device.sm_count = 132;
  gemm.x = reinterpret_cast<void const*>(x);
  gemm.ldw = gemm.ldx;
  gemm.ldy = gemm.n;
  gemm.y_type = DataType(type);
  Kernel const kernel = choose_kernel<Math, true>(gemm, device, copied);
  bool const has_tile = kernel.choice.kind == KernelKind::kAligned;
  std::string text = kernel.sm90 ? "sm90 " : "sm80 ";
  text += has_tile ? name_tile<Math>(kernel) : format_kind(kernel.choice.kind);
  for (auto const& name : list_candidates<Math>(kernel, gemm, device, copied)) text += " " + name;
  return text;
}

ProductKey make_key(int64_t m) {
  return make_key<Bf16>({m, 8, 8, nullptr, 0, nullptr, 0, nullptr, 0, DataType::kBFloat16}, {});
}

// Rehashing moves the entries while they are read.
int race(int rounds) {
  ForcedTile const* const own = find_named_tile(TilesSm80::kShapes[0].name());
  ForcedTile const* const other = find_named_tile(TilesSm80::kShapes[1].name());
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
      std::cout << (word == "bf16"     ? choose<Bf16>(in)
                    : word == "fp16x1" ? choose<Fp16x1>(in)
                    : word == "fp16x3" ? choose<Fp16x3>(in)
                                       : choose<F16>(in));
    } else if (command == "race") {
      int rounds;
      in >> rounds;
      std::cout << race(rounds);
    }
    std::cout << std::endl;
  }
}
