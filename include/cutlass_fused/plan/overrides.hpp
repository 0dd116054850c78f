// What overrules the estimates: a tile that was forced, for tests, or found by timing, and kernels
// that a launch refused.
#pragma once

#include <atomic>
#include <string>

#include "cutlass_fused/common/arch.hpp"
#include "cutlass_fused/plan/raster.hpp"

namespace cutlass_fused {

// cuBLAS, the cheapest tile of a generation, or one tile. A tile concerns operands that its
// generation's tiles read: rows aligned to fewer bytes have one kernel each.
struct TileOverride {
  bool cublas = false;
  bool any_tile = false;
  bool tf32x3 = false;       // of fp32 matrices: a kernel of tf32x3, `tile` if that is not empty
  bool splits_rows = false;  // of fp32 matrices: none of tf32x3; else the estimates decide
  ArchId arch = ArchId::kSm80;
  std::string tile;
  bool has_raster = false;
  Raster raster;

  bool is_of(ArchId other) const { return !cublas && !tf32x3 && arch == other; }
};

// The name of cuBLAS's product with the epilogue behind it, among those of the tiles.
constexpr char kCublasName[] = "cublas";
// The name of the SM80 kernel that is the cheapest by the estimates.
constexpr char kSm80Name[] = "sm80";
// The kernels of tf32x3, by their tiles too, and those of split rows.
constexpr char kTf32x3Name[] = "tf32x3";
constexpr char kSplitRowsName[] = "split_rows";

// The tile of every later call, as force_tile sets it. What it points to is never freed. Null:
// none.
inline std::atomic<TileOverride const*> forced_tile{nullptr};

// The parts of a plan that only a launch can find to be impossible.
enum class Part {
  kCopies,   // no memory for them
  kCublas,   // PyTorch refuses the product, or its cuBLAS cannot be called
  kProduct,  // kProduct to kLogits: no cluster fits, or the driver makes no descriptor
  kStatistics,
  kStrips,
  kGroup,
  kLogits,
  kOnChip
};

// What is struck out of a plan that is made again. Kernels are those of the newest generation.
class Struck {
 public:
  constexpr bool has(Part part) const { return (bits_ & bit(part)) != 0; }
  constexpr Struck with(Part part) const { return Struck(bits_ | bit(part)); }
  constexpr uint32_t bits() const { return bits_; }
  constexpr Struck() = default;

 private:
  constexpr explicit Struck(uint32_t bits) : bits_(bits) {}
  static constexpr uint32_t bit(Part part) { return 1u << static_cast<int>(part); }
  uint32_t bits_ = 0;
};

struct Overrides {
  TileOverride const* forced = nullptr;
  TileOverride const* tuned = nullptr;
  Struck struck;
};

}  // namespace cutlass_fused
