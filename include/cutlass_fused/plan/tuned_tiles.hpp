// The tiles that were found to be the fastest for single products, by timing them: used instead of
// the estimated ones, unless a tile is forced.
#pragma once

#include <atomic>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <unordered_map>

#include "cutlass_fused/plan/overrides.hpp"
#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// What the fastest tile depends on. Not the alignment of the operands: SM80 kernels have tiles to
// choose between for rows of whole 16 bytes alone, and newer kernels read copies of others. Nor the
// epilogue: the product decides. A tile of tf32x3 that cannot have these is ignored (can_have in
// plan/choose_fp32.hpp).
struct ProductKey {
  MathId math;
  DataType y_type;
  int32_t device;
  int64_t m, n, k;

  bool operator==(ProductKey const& other) const {
    return std::tie(m, n, k, math, y_type, device) ==
           std::tie(other.m, other.n, other.k, other.math, other.y_type, other.device);
  }

  // Without the device: a cache serves all GPUs of one name.
  std::string name() const {
    return std::string(spec_of(math).name) + " M=" + std::to_string(m) + " N=" + std::to_string(n) +
           " K=" + std::to_string(k) + " y=" + name_of(y_type);
  }
};

inline ProductKey make_key(Problem const& problem, Device const& device) {
  return {problem.math, problem.y_type, device.index, problem.m, problem.n, problem.k};
}

// "bf16 M=1024 N=8192 K=8192 y=bfloat16", as name() has it. False: no name of a key.
inline bool parse_key(std::string const& name, int64_t device, ProductKey& key) {
  key = {};
  key.device = static_cast<int32_t>(device);
  long long m, n, k;
  char math[16], y_type[16];
  if (std::sscanf(name.c_str(), "%15s M=%lld N=%lld K=%lld y=%15s", math, &m, &n, &k, y_type) !=
      5) {
    return false;
  }
  key.m = m;
  key.n = n;
  key.k = k;
  for (MathId row : kMathIds) {
    for (DataType type : kDataTypes) {
      key.math = row;
      key.y_type = type;
      if (key.name() == name) return true;
    }
  }
  return false;
}

struct HashKey {
  size_t operator()(ProductKey const& key) const {
    uint64_t hash = 0;
    auto const mix = [&](uint64_t value) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    };
    mix(static_cast<uint64_t>(key.math));
    mix(static_cast<uint64_t>(key.y_type) << 32 | static_cast<uint32_t>(key.device));
    mix(static_cast<uint64_t>(key.m));
    mix(static_cast<uint64_t>(key.n));
    mix(static_cast<uint64_t>(key.k));
    return hash;
  }
};

// Any thread may read and write.
class TunedTiles {
 public:
  // Null: none is known.
  TileOverride const* find(ProductKey const& key) const {
    std::shared_lock<std::shared_mutex> const lock(mutex_);
    auto const found = tiles_.find(key);
    return found == tiles_.end() ? nullptr : found->second;
  }

  // Null removes what was known. `tile` must live for ever.
  void set(ProductKey const& key, TileOverride const* tile) {
    std::unique_lock<std::shared_mutex> const lock(mutex_);
    if (tile == nullptr) {
      tiles_.erase(key);
    } else {
      tiles_[key] = tile;
    }
    any_.store(!tiles_.empty(), std::memory_order_release);
  }

  // All that a call pays while nothing is known.
  static bool any() { return any_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<bool> any_{false};
  mutable std::shared_mutex mutex_;
  std::unordered_map<ProductKey, TileOverride const*, HashKey> tiles_;
};

// Never destroyed: threads may still call while the process ends.
inline TunedTiles& tuned_tiles() {
  static auto* const tiles = new TunedTiles;
  return *tiles;
}

// What overrules the estimates of this product: a forced tile, else the one that it was tuned to.
inline Overrides find_overrides(Problem const& problem, Device const& device) {
  TileOverride const* const forced = forced_tile.load(std::memory_order_acquire);
  bool const tuned = TunedTiles::any() && forced == nullptr;
  return {forced, tuned ? tuned_tiles().find(make_key(problem, device)) : nullptr, {}};
}

}  // namespace cutlass_fused
