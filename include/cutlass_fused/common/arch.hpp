// The generations of kernels, and which of them a GPU runs.
#pragma once

#include <cstdint>

namespace cutlass_fused {

// THE list of generations, oldest first: the CUTLASS generation that a kernel is written for, not
// the GPU that it runs on. Each has a folder under gemm/ and an ArchSpec there.
enum class ArchId : int32_t { kSm80, kSm90 };
constexpr int kArchs = 2;

// The generations as types, for kernels.
struct Sm80 {
  static constexpr ArchId kId = ArchId::kSm80;
};
struct Sm90 {  // its instructions are those of 9.0 alone
  static constexpr ArchId kId = ArchId::kSm90;
};

class ArchSet {
 public:
  constexpr ArchSet() = default;
  constexpr explicit ArchSet(uint32_t bits) : bits_(bits) {}
  constexpr ArchSet with(ArchId arch) const { return ArchSet(bits_ | bit(arch)); }
  constexpr ArchSet without(ArchId arch) const { return ArchSet(bits_ & ~bit(arch)); }
  constexpr bool has(ArchId arch) const { return (bits_ & bit(arch)) != 0; }
  constexpr uint32_t bits() const { return bits_; }

 private:
  static constexpr uint32_t bit(ArchId arch) { return 1u << static_cast<int>(arch); }
  uint32_t bits_ = 0;
};

}  // namespace cutlass_fused
