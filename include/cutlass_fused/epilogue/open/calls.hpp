// What an open kernel asks of its program, in PTX: marked lines, which src/link replaces before the
// kernel is assembled. They are valid as they stand, so that nvcc's own check of the PTX passes:
// such a kernel's program is the identity, without operands.
//
// What reads or writes memory is volatile: it must stay behind the barriers that it stands behind.
#pragma once

#include <cstdint>

#include "cutlass_fused/epilogue/open/slots.hpp"

namespace cutlass_fused::open {

// Whether the program has an operand or an output: constant once the line is replaced.
template <int kSlot>
__device__ __forceinline__ bool is_used() {
  int used;
  asm("mov.b32 %0, 0; // CUTLASS_FUSED_USED %1 %0" : "=r"(used) : "n"(kSlot));
  return used != 0;
}

// The bytes of an element in memory, or 0: constant once the line is replaced.
template <int kSlot>
__device__ __forceinline__ int size_of() {
  int size;
  asm("mov.b32 %0, 0; // CUTLASS_FUSED_SIZE %1 %0" : "=r"(size) : "n"(kSlot));
  return size;
}

// An element of a vector as it lies in memory, or the value of a number.
template <int kSlot>
__device__ __forceinline__ uint32_t fetch(void const* data, int64_t at, uint32_t value) {
  uint32_t raw;
  asm volatile("mov.b32 %0, 0; // CUTLASS_FUSED_FETCH %1 %0 %2 %3 %4"
               : "=r"(raw)
               : "n"(kSlot), "l"(__cvta_generic_to_global(data)), "l"(at), "r"(value));
  return raw;
}

// What that is in fp32.
template <int kSlot>
__device__ __forceinline__ float convert(uint32_t raw) {
  float value;
  asm("mov.b32 %0, %2; // CUTLASS_FUSED_CONVERT %1 %0 %2" : "=f"(value) : "n"(kSlot), "r"(raw));
  return value;
}

// An element of a matrix in fp32, or 0.
template <int kSlot>
__device__ __forceinline__ float load(void const* data, int64_t at, bool is_in) {
  float value;
  asm volatile("mov.f32 %0, 0f00000000; // CUTLASS_FUSED_LOAD %1 %0 %2 %3 %4"
               : "=f"(value)
               : "n"(kSlot), "l"(__cvta_generic_to_global(data)), "l"(at), "r"(int(is_in)));
  return value;
}

template <int kSlot>
__device__ __forceinline__ void store(void* data, int64_t at, bool is_in, float value) {
  asm volatile("// CUTLASS_FUSED_STORE %0 %1 %2 %3 %4" ::"n"(kSlot),
               "l"(__cvta_generic_to_global(data)), "l"(at), "r"(int(is_in)), "f"(value)
               : "memory");
}

// Two elements of an output of 16 bits, as they lie in memory.
template <int kSlot>
__device__ __forceinline__ uint32_t pack(float first, float second) {
  uint32_t pair;
  asm("mov.b32 %0, 0; // CUTLASS_FUSED_PACK %1 %0 %2 %3"
      : "=r"(pair)
      : "n"(kSlot), "f"(first), "f"(second));
  return pair;
}

// Writes y[0] to y[kOutputs - 1], as far as the program has such. An asm has at most 30 operands.
__device__ __forceinline__ void apply(float acc, float const* slots, float* y) {
  static_assert(kOutputs == 3 && kSlots == 12);
  asm("mov.f32 %0, %3; // CUTLASS_FUSED_APPLY %0 %1 %2 %3 %4 %5 %6 %7 %8 %9 %10 %11 %12 %13 %14 %15"
      : "=f"(y[0]), "=f"(y[1]), "=f"(y[2])
      : "f"(acc), "f"(slots[0]), "f"(slots[1]), "f"(slots[2]), "f"(slots[3]), "f"(slots[4]),
        "f"(slots[5]), "f"(slots[6]), "f"(slots[7]), "f"(slots[8]), "f"(slots[9]), "f"(slots[10]),
        "f"(slots[11]));
}

}  // namespace cutlass_fused::open
