// What kernels of programs of rows (program/rows/print.hpp) merge elements with, as text: only a
// compiler for GPUs reads it.
//
// kThreads have a row, kPieces pieces of kPiece elements each: piece j of thread t begins at column
// (j * kThreads + t) * kPiece. Sums are of halves, or one by one where they are short. Their order
// depends on nothing but N, types and the alignment of rows: results are the same in each run.
#pragma once

namespace cutlass_fused::program {

constexpr char kRowsPrelude[] = R"(
struct RowSum {
  static __device__ __forceinline__ float nothing() { return 0.0f; }
  static __device__ __forceinline__ float of(float x, float y) { return __fadd_rn(x, y); }
};
struct RowMax {
  static __device__ __forceinline__ float nothing() { return __int_as_float(0xff800000); }
  static __device__ __forceinline__ float of(float x, float y) { return larger_of(x, y); }
};
struct RowMin {
  static __device__ __forceinline__ float nothing() { return __int_as_float(0x7f800000); }
  static __device__ __forceinline__ float of(float x, float y) { return smaller_of(x, y); }
};

// What all elements of a row are divided by, and its reciprocal. A division has a branch of its
// own, which the next one waits for, and a slow way for small quotients, as most of a softmax are.
// Scaled by a power of two where the reciprocal, or what is left of an element behind the quotient,
// would be no normal number.
struct RowDivisor {
  float scale, divisor, reciprocal;
  __device__ __forceinline__ explicit RowDivisor(float value) {
    float const size = fabsf(value);
    scale = size < 0x1p-100f ? 0x1p64f : size > 0x1p100f ? 0x1p-64f : 1.0f;
    divisor = __fmul_rn(value, scale);
    reciprocal = 1.0f / divisor;
  }
};

// Rounded twice, and by what that left once more, as Markstein divides (IBM Journal of Research and
// Development 34, 1990): to the bit that a division gives, but where x is below 2^-100, the
// quotient no normal number, or one of the few largest, of which infinity may come. Infinities and
// NaN leave nothing, and a zero its sign.
__device__ __forceinline__ float divide(float x, RowDivisor const& by) {
  float const scaled = __fmul_rn(x, by.scale);
  float const quotient = __fmul_rn(scaled, by.reciprocal);
  float const left = fmaf(-quotient, by.divisor, scaled);
  bool const is_finite = fabsf(left) < __int_as_float(0x7f800000);
  return copysignf(is_finite ? fmaf(left, by.reciprocal, quotient) : quotient, quotient);
}

[[maybe_unused]] constexpr int kLanes = kThreads < 32 ? kThreads : 32;
[[maybe_unused]] constexpr int kWarps = kThreads / kLanes;

template <class Op, int kCount>
__device__ __forceinline__ float merge(float const* values) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    constexpr int kHalf = kCount / 2;
    return Op::of(merge<Op, kHalf>(values), merge<Op, kCount - kHalf>(values + kHalf));
  }
}

// Of lanes side by side: all get the result.
template <class Op, int kCount>
__device__ __forceinline__ float merge_lanes(float value) {
#pragma unroll
  for (int step = kCount / 2; step > 0; step /= 2) {
    value = Op::of(value, __shfl_xor_sync(0xffffffff, value, step));
  }
  return value;
}

// Of all pieces of a row. kTurn: 0 and 1 in turn, so that none overwrites what others still read.
template <class Op, int kTurn>
__device__ __forceinline__ float merge_row(float const (&pieces)[kPieces], float* shared) {
  float value;
  if constexpr (kIsUnrolled) {
    value = merge<Op, kPieces>(pieces);
  } else {
    value = pieces[0];
#pragma unroll 1
    for (int j = 1; j < kPieces; ++j) value = Op::of(value, pieces[j]);
  }
  value = merge_lanes<Op, kLanes>(value);
  if constexpr (kWarps > 1) {
    float* const parts = shared + (threadIdx.y * 2 + kTurn) * 32;
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    float warps[kWarps];
#pragma unroll
    for (int i = 0; i < kWarps; ++i) warps[i] = parts[i];
    value = merge<Op, kWarps>(warps);
  }
  return value;
}

// Of groups of kCount pieces side by side, by shared memory: all get their group's.
template <class Op, int kCount>
__device__ __forceinline__ void merge_groups(float (&pieces)[kPieces], float* shared) {
  constexpr int kGroups = kSlots / kCount;
  float* const slots = shared + threadIdx.y * (kSlots + kGroups);
  float* const groups = slots + kSlots;
  __syncthreads();  // what was read there before
#pragma unroll kUnrolled
  for (int j = 0; j < kPieces; ++j) {
    int const slot = j * kThreads + threadIdx.x;
    if (slot < kSlots) slots[slot] = pieces[j];
  }
  __syncthreads();
  if constexpr (kCount <= 32) {
    // Each by one thread: of a warp's lanes most would have nothing to do.
#pragma unroll 1
    for (int group = threadIdx.x; group < kGroups; group += kThreads) {
      float value = slots[group * kCount];
#pragma unroll 4
      for (int i = 1; i < kCount; ++i) value = Op::of(value, slots[group * kCount + i]);
      groups[group] = value;
    }
  } else {
    int const lane = threadIdx.x % kLanes;
#pragma unroll 1
    for (int first = 0; first < kGroups; first += kWarps) {
      int const group = first + int(threadIdx.x) / kLanes;
      float value = Op::nothing();
      if (group < kGroups) {
#pragma unroll 4
        for (int i = lane; i < kCount; i += kLanes) {
          value = Op::of(value, slots[group * kCount + i]);
        }
      }
      value = merge_lanes<Op, kLanes>(value);
      if (group < kGroups && lane == 0) groups[group] = value;
    }
  }
  __syncthreads();
#pragma unroll kUnrolled
  for (int j = 0; j < kPieces; ++j) {
    int const slot = j * kThreads + threadIdx.x;
    if (slot < kSlots) pieces[j] = groups[slot / kCount];
  }
}

// A piece as it lies in memory, for later: its elements are in half of the registers, or as many.
template <int kCount, class Element>
__device__ __forceinline__ void load_words(bool is_in, Piece<Element, kCount>& piece,
                                           Element const* from) {
  using Word = typename Piece<Element, kCount>::Word;
#pragma unroll
  for (int i = 0; i < piece.kWords; ++i) {
    piece.words[i] = is_in ? reinterpret_cast<Word const*>(from)[i] : Word{};
  }
}
template <int kCount, class Element>
__device__ __forceinline__ void read_words(Piece<Element, kCount> const& piece, float* values) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = to_float(piece.elements[i]);
}

template <int kCount, class Element>
__device__ __forceinline__ void load_where(bool is_in, float* values, Element const* from) {
  float piece[kCount] = {};
  if (is_in) load(piece, from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = piece[i];
}
)";

}  // namespace cutlass_fused::program
