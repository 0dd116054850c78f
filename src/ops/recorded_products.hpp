// The products that calls meet while autotune asks for them, for it to time afterwards.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "cutlass_fused/plan/choose_kernel.hpp"
#include "ops/checks.hpp"

namespace cutlass_fused {

// What autotune needs to compute the same product on operands of its own.
struct RecordedProduct {
  ProductKey key;
  DataType type;  // of x and weight
  Precision precision;
  std::string choice;              // the heuristic's tile, one of ...
  std::vector<std::string> tiles;  // ... those that can serve
};

// Any thread may record.
class RecordedProducts {
 public:
  static bool enabled() { return enabled_.load(std::memory_order_relaxed); }
  static void enable(bool enabled) { enabled_.store(enabled, std::memory_order_relaxed); }

  static bool contains(ProductKey const& key);

  // Keeps the first of each key.
  static void add(RecordedProduct product);

  // What was added since the last time.
  static std::vector<RecordedProduct> take();

 private:
  static inline std::atomic<bool> enabled_{false};
};

// Unless it was recorded or tuned before, or there is nothing to choose.
template <class Math>
void record_product(Kernel const& kernel, GemmArgs const& gemm, Precision precision,
                    Device const& device, bool copied) {
  ProductKey const key = make_key<Math>(gemm, device);
  if (tuned_tiles().find(key) != nullptr || RecordedProducts::contains(key)) return;
  std::vector<std::string> tiles = list_candidates<Math>(kernel, gemm, device, copied);
  if (tiles.empty()) return;
  RecordedProducts::add({key, Math::kIn, precision, name_tile<Math>(kernel), std::move(tiles)});
}

}  // namespace cutlass_fused
