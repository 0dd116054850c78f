// The generations of kernels, and which of them a GPU runs.
#pragma once

#include <cstdint>

namespace cutlass_fused {

// THE list of generations, oldest first: the CUTLASS generation that a kernel is written for, not
// the GPU that it runs on. Each has a folder under gemm/ and an ArchSpec there. `gpu` is the
// compute capability, times ten, whose GPUs alone run it, 0 where all do; `listed` is what
// CUTLASS_FUSED_ARCHS must hold so that it is compiled, "" where it always is.
//      row    gpu  listed   has run on such a GPU
#define CUTLASS_FUSED_ARCH_ROWS(ROW) \
  ROW(Sm80, 0, "", true)             \
  ROW(Sm90, 90, "9.0a", true)        \
  ROW(Sm100, 100, "10.0a", false)

#define CUTLASS_FUSED_ARCH_ID(Row, gpu, listed, tested) k##Row,
enum class ArchId : int32_t { CUTLASS_FUSED_ARCH_ROWS(CUTLASS_FUSED_ARCH_ID) };
#undef CUTLASS_FUSED_ARCH_ID

struct ArchRow {
  ArchId id;
  int gpu;
  char const* listed;
  bool tested;
};
#define CUTLASS_FUSED_ARCH_ROW(Row, gpu, listed, tested) {ArchId::k##Row, gpu, listed, tested},
constexpr ArchRow kArchRows[] = {CUTLASS_FUSED_ARCH_ROWS(CUTLASS_FUSED_ARCH_ROW)};
#undef CUTLASS_FUSED_ARCH_ROW
constexpr int kArchs = sizeof kArchRows / sizeof kArchRows[0];

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
