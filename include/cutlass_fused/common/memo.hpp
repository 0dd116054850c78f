// What a launch derives from its arguments, kept for the next launch with the same ones: TMA
// descriptors, for each of which CUTLASS looks up the driver's function and calls it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "cutlass_fused/plan/raster.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// All that descriptors depend on, beside the kernel's type: pointers, strides, shape, the type of
// y, the source of the epilogue, the GPU; and the order of the tiles. An address that comes back
// with another tensor behind it gives the same descriptors.
using LaunchKey = std::array<int64_t, 15>;

inline LaunchKey make_launch_key(GemmArgs const& gemm, Raster const& raster, Device const& device,
                                 Source const& source = {}) {
  auto const address = [](void const* data) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  };
  return {gemm.m,
          gemm.n,
          gemm.k,
          address(gemm.x),
          gemm.ldx,
          address(gemm.weight),
          gemm.ldw,
          address(gemm.y),
          gemm.ldy,
          static_cast<int64_t>(gemm.y_type),
          static_cast<int64_t>(raster.direction),
          raster.count,
          device.index,
          address(source.data),
          source.ld};
}

template <class Key>
uint64_t hash_words(Key const& key) {
  uint64_t hash = 0;
  for (int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

// One value to a slot: a key whose slot is taken replaces what is there. One to a thread, so that
// nobody waits for a lock.
template <class Value, class Key = LaunchKey>
class Memo {
 public:
  // The value of this key. Where there is none, make(value) makes it and says whether it could;
  // null: it could not, and nothing is kept.
  template <class Make>
  Value const* find(Key const& key, Make&& make) {
    if (slots_ == nullptr) slots_.reset(new Slot[kSlots]);
    Slot& slot = slots_[hash_words(key) % kSlots];
    if (slot.used && slot.key == key) return &slot.value;
    slot.used = make(slot.value);
    slot.key = key;
    return slot.used ? &slot.value : nullptr;
  }

 private:
  static constexpr int kSlots = 256;
  struct Slot {
    bool used = false;
    Key key;
    Value value;
  };
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace cutlass_fused
