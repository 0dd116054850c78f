// The products that calls meet while autotune asks for them, for it to time afterwards.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "cutlass_fused/plan/tuned_tiles.hpp"
#include "launch/product.hpp"
#include "checks/status.hpp"

namespace cutlass_fused {

// What autotune needs to compute the same product on operands of its own.
struct RecordedProduct {
  ProductKey key;
  DataType type;  // of x and weight
  Precision precision;
  std::string choice;              // the estimated tile, one of ...
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

// Which products are met, for autotune: unless this one was recorded or tuned before, or there is
// nothing to choose.
void record_product(Product const& product, Plan const& plan);

inline void record_if_asked(Product const& product, Plan const& plan) {
  if (RecordedProducts::enabled() && !is_capturing(product.device)) record_product(product, plan);
}

}  // namespace cutlass_fused
